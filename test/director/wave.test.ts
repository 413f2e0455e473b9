import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RunningProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { knownCell, newHostId, post, startDirector } from '../support/director.ts';
import { type KeyServer, startKeyServer } from '../support/key-server.ts';

let database: FreshDatabase;
let keys: KeyServer;
let directors: RunningProcess[];
beforeAll(async () => {
  [database, keys] = await Promise.all([freshDatabase(), startKeyServer()]);
  // cells that beat once live on, however long the tests take
  await database.setClock(Date.now());
  for (const id of ['us-1', 'us-2', 'us-3']) await knownCell(database, id);
  directors = await Promise.all([startDirector(database, { keys }), startDirector(database, { keys })]);
});
afterAll(async () => {
  for (const director of directors) await director.stop();
  await keys?.stop();
  await database?.drop();
});

const connections = async () =>
  (
    await database.query(
      "select count(*) as n from pg_stat_activity where datname = current_database() and application_name like 'orca-relay/director/%'",
    )
  )[0]?.n as number;

test('P10: a hundred and fifty hosts that ask at once are all seated, over no more connections than the pools have', async () => {
  const hosts = Array.from({ length: 150 }, () => newHostId());
  const tokens = await Promise.all(hosts.map((host) => keys.relayToken(host)));
  let most = 0;
  let waiting = true;
  const watch = (async () => {
    while (waiting) most = Math.max(most, await connections());
  })();
  await Promise.all(
    hosts.map(async (relayHostId, i) => {
      for (;;) {
        const director = directors[i % 2] as RunningProcess;
        const answer = await post(
          `${director.origin}/v1/assign`,
          { v: 1, relayHostId },
          { token: tokens[i] as string },
        );
        if (answer.status === 200) return;
        expect(answer.status).toBe(503);
        expect(answer.retryAfter).toBeGreaterThanOrEqual(1);
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }),
  );
  waiting = false;
  await watch;
  expect(most).toBeLessThanOrEqual(6);
  const seats = await database.query(
    'select cell_id, count(*) as n, max(epoch) as epoch from relay.assignment group by cell_id',
  );
  expect(seats.reduce((sum, { n }) => sum + Number(n), 0)).toBe(150);
  for (const { epoch, n } of seats) {
    expect(epoch).toBe(1);
    // Two choices, and load that counts a lease the moment it is granted: the burst spreads by itself.
    expect(Number(n)).toBeGreaterThan(25);
  }
});
