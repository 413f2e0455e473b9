import { afterAll, beforeAll, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { Fleet, type FleetDatabase } from './support/fleet.ts';
import { readFeed } from './support/seat-feed.ts';
import { proxyBefore, type TcpProxy } from './support/tcp-proxy.ts';
import { until } from './support/wait.ts';

let database: FleetDatabase;
let proxy: TcpProxy;
let fleet: Fleet;
beforeAll(async () => {
  database = await freshDatabase();
  proxy = await proxyBefore(database.url);
  fleet = await Fleet.start({
    database,
    directors: 0,
    cells: [{}, {}],
    rewriteUrl: (url) => proxy.through(url),
    env: { ORCA_RELAY_READINESS_SQL_GRACE_MS: '0' },
  });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});

const ready = async (index: number) => (await fetch(`${fleet.cell(index).origin}/ready`)).status;

test('a cell with readinessLocal is ready with Postgres down, one without is not', async () => {
  const [row] = await database.query(`select relay_v1.set_cell_flags('c1', '{"readinessLocal": true}', 0) as answer`);
  expect(row?.answer).toBe('ok');
  await until(
    'the flags',
    () => readFeed(fleet, fleet.cell()),
    ({ flagsApplied }) => flagsApplied?.generation === 1,
  );
  expect([await ready(0), await ready(1)]).toEqual([200, 200]);
  proxy.refuse();
  // What was found is kept for a while.
  fleet.clock.jump(11_000);
  expect([await ready(0), await ready(1)]).toEqual([200, 503]);
});
