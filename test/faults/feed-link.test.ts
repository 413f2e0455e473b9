import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type Node, type Seated } from '../acceptance/support/fleet.ts';
import { newIdentity } from '../acceptance/support/identity.ts';
import { askAssign, type Grant } from '../acceptance/support/parts.ts';
import { toReserve } from '../acceptance/support/reserve-mode.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { readFull, readSince } from '../acceptance/support/seat-feed.ts';
import { startTcpProxy, type TcpProxy } from '../acceptance/support/tcp-proxy.ts';
import { until } from '../acceptance/support/wait.ts';

/** Two reserve cells; what goes to the registered address of the first passes a proxy, and hosts dial behind it. */
let fleet: Fleet;
let link: TcpProxy;
let behind: Node;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{}], directors: 0, tokenLifeSeconds: 3_600 });
  const [, , port] = fleet.cell().origin.split(':');
  link = await startTcpProxy({ host: '127.0.0.1', port: Number(port) });
  behind = fleet.cell();
  const address = link.through(behind.origin).replace(/\/$/, '');
  await behind.stop();
  Object.assign(behind.env, { ORCA_RELAY_CELL_URL: address, ORCA_RELAY_PUBLIC_URL: address });
  await fleet.database.query(`select relay_v1.register_cell('c1', $1, 'us-central1', 900)`, [address]);
  await behind.start();
  const other = await fleet.addCell();
  await other.start();
  await fleet.heard();
  await (await fleet.addDirector()).start();
  for (const { id } of fleet.cells) await toReserve(fleet, id, { intakePerSec: 1_000 });
});
afterAll(async () => {
  await fleet?.stop();
  await link?.stop();
});

const ofDirector = async (name: string, labels: Record<string, string> = {}) =>
  total(await scrape(fleet.director.origin), name, labels);
const fullPages = async () => total(await scrape(behind.origin), 'orca_relay_seat_feed_pages_total', { kind: 'full' });

/** Until one sits behind the link: dialled past it, as over another network. */
async function seatBehind(): Promise<Seated> {
  const address = behind.env.ORCA_RELAY_CELL_URL;
  for (;;) {
    const identity = newIdentity();
    const token = await fleet.token(identity);
    const asked = await until(
      'a place',
      () => askAssign(fleet.director.origin, token, identity),
      ({ status }) => status === 200,
    );
    const grant = asked.body as unknown as Grant;
    const origin = grant.cellUrl === address ? behind.origin : grant.cellUrl;
    const host = await fleet.dial(identity, grant, { token, origin, relayOrigin: grant.cellUrl });
    if (grant.cellUrl === address) return { identity, grant, host };
  }
}

/** What the database remembers of where the host was put. */
async function rowsOf({ identity }: Seated): Promise<unknown> {
  const text = 'select cell_id, epoch::int from relay.assignment where relay_host_id = $1';
  return fleet.database.query(text, [identity.relayHostId]);
}

test('incident 12, 86: a link that flaps 20 times in 10 min moves nobody, loses no seat, and is taken up where it broke', async () => {
  const seated = await Promise.all([seatBehind(), seatBehind(), seatBehind()]);
  for (const one of seated) {
    await until(
      'its row',
      () => rowsOf(one),
      (rows) => JSON.stringify(rows) === JSON.stringify([{ cell_id: 'c1', epoch: 1 }]),
    );
  }
  const retained = () => ofDirector('orca_relay_owner_map_refresh_total', { action: 'retained' });
  const replaced = () => ofDirector('orca_relay_owner_map_refresh_total', { action: 'replaced' });
  const entries = () => ofDirector('orca_relay_owner_map_entries', { kind: 'seats' });
  await until('the map to hold them', entries, (count) => count >= seated.length);
  const [held, full, before] = [await entries(), await fullPages(), await readFull(fleet, behind)];

  for (let flap = 0; flap < 20; flap += 1) {
    const failures = await retained();
    if (flap % 2 === 0) link.refuse();
    else link.stall();
    await fleet.advance(15_000);
    await until('a failed poll', retained, (count) => count > failures);
    expect(await entries()).toBe(held);
    link.restore();
    const polls = await replaced();
    await fleet.advance(15_000);
    await until('a poll of each cell', replaced, (count) => count > polls + 2);
  }

  expect(await ofDirector('orca_relay_owner_map_unavailable_total')).toBe(0);
  // One page was ours.
  expect(await fullPages()).toBe(full + 1);
  expect((await readSince(fleet, behind, before)).changes).toEqual([]);
  expect(await fleet.database.query(`select 1 from relay.change where kind = 'moved'`)).toEqual([]);
  for (const one of seated) {
    expect(one.host.peer.isOpen).toBe(true);
    expect(await rowsOf(one)).toEqual([{ cell_id: 'c1', epoch: 1 }]);
  }
  expect(fleet.problems()).toEqual([]);
});
