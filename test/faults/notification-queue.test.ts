import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { Fleet, type Node } from '../acceptance/support/fleet.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

/** Two directors, the second of which stops reading, and one cell. */
let database: FreshDatabase;
let fleet: Fleet;
let stopped: Node;
let session: pg.Client;
beforeAll(async () => {
  database = await freshDatabase();
  fleet = await Fleet.start({ database, directors: 2, processes: true });
  stopped = fleet.directors[1] as Node;
  session = new pg.Client({ connectionString: database.url });
  await session.connect();
});
afterEach(() => stopped.signal('SIGCONT'));
afterAll(async () => {
  try {
    await session?.end();
    await fleet?.stop();
  } finally {
    await database?.drop();
  }
});

/** Each in a transaction of its own, as cells and operators ring. */
const ring = (times: number) =>
  database.query(`do $$ begin
    for n in 1..${times} loop
      perform relay.ring('admission', 'c1', null, relay.now());
      commit;
    end loop;
  end $$`);
const changes = async (kind: string) =>
  Number((await database.query('select count(*) as n from relay.change where kind = $1', [kind]))[0]?.n);
const usageIn = async (node: Node) => total(await scrape(node.origin), 'orca_relay_notification_queue_usage');
const heardBy = async (node: Node) =>
  total(await scrape(node.origin), 'orca_relay_changes_total', { reader: 'director', kind: 'admission' });

test('incident 10: with a director that stopped reading 100 000 changes are committed, and the other says how full the queue is', async () => {
  const RINGS = 100_000;
  // What a stopped process does once the buffers before it are full: a session that listens, and takes nothing.
  await session.query('listen relay_doorbell');
  await session.query('begin; select 1');
  stopped.signal('SIGSTOP');
  const before = await changes('admission');
  const ringing = ring(RINGS);
  const { host } = await fleet.seat();
  await ringing;
  expect((await changes('admission')) - before).toBe(RINGS);
  expect(host.peer.isOpen).toBe(true);
  await fleet.seat();

  const [row] = await database.query<{ usage: number }>('select pg_notification_queue_usage() as usage');
  expect(row?.usage).toBeGreaterThan(0);
  await until(
    'the queue watched',
    () => usageIn(fleet.director),
    (usage) => usage >= (row?.usage ?? 0),
    60_000,
  );

  stopped.signal('SIGCONT');
  await session.query('commit');
  await until(
    'all of it read',
    () => heardBy(stopped),
    (count) => count >= RINGS,
    120_000,
  );
  // Whoever rings gives back what was read.
  await ring(5_000);
  await until(
    'the queue empty',
    () => usageIn(fleet.director),
    (usage) => usage < (row?.usage ?? 0) / 2,
    60_000,
  );
  expect(fleet.problems()).toEqual([]);
}, 300_000);
