import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { Fleet, type FleetDatabase, type Seated } from './support/fleet.ts';
import { toReserve } from './support/reserve-mode.ts';
import { scrape, total } from './support/scrape.ts';
import { readFeed } from './support/seat-feed.ts';
import { proxyBefore, type TcpProxy } from './support/tcp-proxy.ts';
import { until } from './support/wait.ts';

/** A cell in reserve mode, a recorded peer that is only a row, and directors that are gone. */
let database: FleetDatabase;
let proxy: TcpProxy;
let fleet: Fleet;
let peer: string;
let seated: Seated;

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await proxyBefore(database.url);
  fleet = await Fleet.start({ database, rewriteUrl: (url) => proxy.through(url) });
  seated = await fleet.seat();
  await database.query(`select relay_v1.register_cell('c9', 'https://c9.test.example', 'us-central1', 900)`);
  await database.query(`select relay_v1.set_admit_mode('c9', 'reserve')`);
  peer = randomUUID();
  const [heard] = await database.query(
    `select relay_v1.heartbeat(cell_id => 'c9', incarnation => $1, url => 'https://c9.test.example', region => 'us-central1',
       started_at => relay.now(), ready => true, load => '{"enforced_units": 0, "inclusion_watermark": 0}') as answer`,
    [peer],
  );
  expect(heard?.answer).toBe('ok');
  await peerSays('db');
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});
afterEach(() => proxy.restore());

async function peerSays(mode: 'db' | 'reserve'): Promise<void> {
  const [row] = await database.query(`select relay_v1.record_effective_mode('c9', $1, $2) as answer`, [peer, mode]);
  expect(row?.answer).toBe('ok');
}
const cellSays = async (name: string, labels: Record<string, string> = {}) =>
  total(await scrape(fleet.cell().origin), name, labels);
const claims = (outcome: string) => cellSays('orca_relay_reserve_trip_claims_total', { outcome });
const row = async () =>
  (await database.query(`select mode from relay.cell_effective_mode where cell_id = 'c1'`))[0]?.mode;

/** The only slot is the peer's, which goes on saying so. */
async function hold(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 30_000) {
    await peerSays('db');
    await fleet.advance(Math.min(left, 30_000));
  }
}

test('81: the only slot taken, the cell stays in reserve and admits from memory; the slot free, it trips', async () => {
  await toReserve(fleet, 'c1', { deadManTripSlots: 1 });
  const again = await fleet.dial(seated.identity, seated.grant);
  expect(await cellSays('orca_relay_reserve_unleased_controls')).toBe(1);
  await fleet.director.stop();
  await hold(240_000);
  await until(
    'refused claims',
    () => claims('full'),
    (count) => count >= 3,
  );
  expect(await readFeed(fleet, fleet.cell())).toMatchObject({ admitModeRaw: 'reserve', admitModeEffective: 'reserve' });
  expect(await row()).toBe('reserve');
  expect(await cellSays('orca_relay_reserve_reregistrations_total')).toBe(0);
  expect(again.peer.isOpen).toBe(true);

  proxy.stall();
  const redialled = await fleet.dial(seated.identity, seated.grant);
  expect(redialled.ack?.generation).toBe(3);
  proxy.restore();

  await peerSays('reserve');
  await fleet.advance(38_000);
  await until('tripped', row, (mode) => mode === 'db');
  await until(
    'its lease',
    () => cellSays('orca_relay_reserve_unleased_controls'),
    (count) => count === 0,
  );
  expect(await readFeed(fleet, fleet.cell())).toMatchObject({ admitModeRaw: 'db' });
  expect(await claims('granted')).toBe(1);
  expect(redialled.peer.isOpen).toBe(true);
  expect(await fleet.leases(seated.identity)).toMatchObject([{ cell_id: 'c1', generation: 3, state: 'active' }]);
  expect(fleet.problems()).toEqual([]);
});

test('82: with no slot at all 30 minutes of silence change nothing', async () => {
  await database.query(
    `select relay_v1.set_cell_flags('c1', '{"admitMode": "db"}', (select flags_generation from relay.cell where cell_id = 'c1'))`,
  );
  await until(
    'back to db',
    () => readFeed(fleet, fleet.cell()),
    ({ admitModeEffective, flagsApplied }) => admitModeEffective === 'db' && flagsApplied?.flags.admitMode === 'db',
  );
  await toReserve(fleet, 'c1', { deadManTripSlots: 0 });
  const token = await fleet.token(seated.identity, { lifeSeconds: 7_200 });
  const host = await fleet.dial(seated.identity, seated.grant, { token });
  const claimed = await cellSays('orca_relay_reserve_trip_claims_total');
  await fleet.advance(1_800_000, 15_000);
  expect(await readFeed(fleet, fleet.cell())).toMatchObject({ admitModeRaw: 'reserve', admitModeEffective: 'reserve' });
  await until('its row', row, (mode) => mode === 'reserve');
  expect(await cellSays('orca_relay_reserve_trip_claims_total')).toBe(claimed);
  expect(await cellSays('orca_relay_reserve_unleased_controls')).toBe(1);
  expect(host.peer.isOpen).toBe(true);
  expect(fleet.problems()).toEqual([]);
});
