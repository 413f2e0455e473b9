import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { Fleet, type Node } from '../acceptance/support/fleet.ts';
import { type HostIdentity, newIdentity } from '../acceptance/support/identity.ts';
import { assign } from '../acceptance/support/parts.ts';
import { toReserve } from '../acceptance/support/reserve-mode.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { readFull } from '../acceptance/support/seat-feed.ts';
import { proxyBefore, type TcpProxy } from '../acceptance/support/tcp-proxy.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

/** Two reserve cells, and two directors, the second of which stands still for a while. */
let database: FreshDatabase;
let fleet: Fleet;
/** Before the database, for the second director alone. */
let proxy: TcpProxy;
let late: Node;
beforeAll(async () => {
  database = await freshDatabase();
  fleet = await Fleet.start({ database, cells: [{}, {}], processes: true });
  proxy = await proxyBefore(database.url);
  late = await fleet.addDirector({ DATABASE_URL: proxy.through(database.urlFor('relay_director')) });
  await late.start();
  for (const { id } of fleet.cells) await toReserve(fleet, id, { intakePerSec: 1_000 });
});
afterEach(() => late.signal('SIGCONT'));
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});

const ledgerOf = async (director: Node) => total(await scrape(director.origin), 'orca_relay_reserve_ledger_waiting');
const rowOf = async ({ relayHostId }: HostIdentity) =>
  (await database.query('select cell_id, epoch from relay.assignment where relay_host_id = $1', [relayHostId]))[0];
const epochsOf = async ({ relayHostId }: HostIdentity) =>
  (await database.query('select epoch from relay.change where relay_host_id = $1 order by id', [relayHostId])).map(
    ({ epoch }) => epoch,
  );
test("incident 23: what a director that stood still, for two minutes of the database's clock, writes late changes no newer row", async () => {
  const identity = newIdentity();
  const token = await fleet.token(identity);
  const first = await assign(late.origin, token, identity, { reconnect: false });
  proxy.refuse();
  const host = await fleet.dial(identity, first, { token });
  await until(
    'its seat waits to be recorded',
    () => ledgerOf(late),
    (waiting) => waiting > 0,
  );
  late.signal('SIGSTOP');
  proxy.restore();

  const home = fleet.cellAt(first.cellUrl);
  const other = fleet.cells.find(({ id }) => id !== home.id) as Node;
  await database.query(`select relay_v1.set_admission($1, 'existing-only')`, [home.id]);
  await until(
    'the other director knows',
    async () =>
      total(await scrape(fleet.director.origin), 'orca_relay_cell_admission', {
        cell: home.id,
        admission: 'existing-only',
      }),
    (value) => value === 1,
  );
  host.peer.hangUp(1000, 'signed-out');
  await until(
    'its leave',
    async () => (await readFull(fleet, home)).full.some((seat) => seat.relayHostId === identity.relayHostId),
    (seated) => !seated,
  );
  const second = await until(
    'a place on the other cell',
    () => assign(fleet.director.origin, token, identity),
    ({ cellUrl }) => cellUrl === other.origin,
  );
  const moved = await fleet.dial(identity, second, { token });
  const newer = { cell_id: other.id, epoch: second.assignmentEpoch };
  expect(newer.epoch).toBeGreaterThan(first.assignmentEpoch);
  await until(
    'the newer row',
    () => rowOf(identity),
    (row) => row?.epoch === newer.epoch,
  );
  await database.advanceClock(120_000);
  const before = await epochsOf(identity);

  late.signal('SIGCONT');
  await until(
    'what it had to write written',
    () => ledgerOf(late),
    (waiting) => waiting === 0,
    60_000,
  );
  const stale = total(await scrape(late.origin), 'orca_relay_reserve_ledger_rows_total', { result: 'stale' });
  expect(stale).toBeGreaterThan(0);
  expect(await rowOf(identity)).toEqual(newer);
  expect(await epochsOf(identity)).toEqual(before);
  expect(before.toSorted((a, b) => Number(a) - Number(b))).toEqual(before);
  expect(moved.peer.isOpen).toBe(true);
  const { full } = await readFull(fleet, other);
  expect(full.find(({ relayHostId }) => relayHostId === identity.relayHostId)?.state).toBe('active');
  expect(await assign(late.origin, token, identity)).toMatchObject({
    cellUrl: other.origin,
    assignmentEpoch: newer.epoch,
  });
});
