import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type Node } from '../acceptance/support/fleet.ts';
import { newIdentity } from '../acceptance/support/identity.ts';
import { askAssign } from '../acceptance/support/parts.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

/** A fleet that was killed at once: two cells that come back, twenty that never do, and all that they left in the database. */
let database: FreshDatabase;
let fleet: Fleet;
beforeAll(async () => {
  database = await freshDatabase();
  fleet = await Fleet.start({ database, cells: [{}, {}], processes: true });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await database?.drop();
  }
});

const FIRST_ASSIGN_MS = 50_000;
const DEAD_CELLS = 20;
const HOSTS_A_CELL = 1_000;

/** What cells in reserve mode leave behind that were full, told to drain, tripped, and heard a moment ago. */
async function leaveRows(): Promise<void> {
  await database.query(
    `with cells as (select 'dead-' || n as cell_id, n, gen_random_uuid() as incarnation from generate_series(1, $1::int) n),
       registered as (
         select relay_v1.register_cell(cell_id, 'https://' || cell_id || '.example.test', 'us-central1', 900, 1000, 60) from cells
       ),
       heard as (
         select relay_v1.heartbeat(cell_id => cell_id, url => 'https://' || cell_id || '.example.test', region => 'us-central1',
           incarnation => incarnation, started_at => relay.now(), ready => true, load => jsonb_build_object('enforced_units', 900,
             'inclusion_watermark', 1, 'total_connections', 900, 'in_flight_connections', 0, 'reserved_units', 0, 'hard_cap', 1000,
             'unobserved_bound', 60)) as answer
         from cells, (select count(*) from registered) first
       )
     select count(*) from heard`,
    [DEAD_CELLS],
  );
  await database.query(
    `select relay_v1.set_admit_mode(cell_id, 'reserve'), relay_v1.record_effective_mode(cell_id, incarnation, 'db')
     from relay.cell_runtime where cell_id like 'dead-%'`,
  );
  await database.query(
    `with hosts as (
       insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
       select 'user-' || n, substr(md5(n::text), 1, 16), 'dead-' || (n % $1 + 1), 1 + n % 40, relay.now()
       from generate_series(1, $2::int) n
       returning user_id, relay_host_id, cell_id, epoch
     )
     insert into relay.lease (user_id, relay_host_id, cell_id, epoch, incarnation, generation, state, units,
       inclusion_watermark, expires_at)
     select user_id, relay_host_id, cell_id, epoch, r.incarnation, 1, 'active', 1, 1, relay.now() + interval '105 s'
     from hosts join relay.cell_runtime r using (cell_id)`,
    [DEAD_CELLS, DEAD_CELLS * HOSTS_A_CELL],
  );
}

test('incident 22: over the rows of a fleet that was killed a new one grants its first host within 50 s', async () => {
  const before = await Promise.all(Array.from({ length: 6 }, () => fleet.seat()));
  await leaveRows();
  const everybody: Node[] = [...fleet.cells, fleet.director];
  for (const node of everybody) node.signal('SIGKILL');
  await Promise.all(everybody.map((node) => node.exited()));

  const startedAt = performance.now();
  await Promise.all(everybody.map((node) => node.start()));
  const identity = newIdentity();
  const token = await fleet.token(identity);
  const ask = () => askAssign(fleet.director.origin, token, identity);
  const granted = await until('a host granted', ask, ({ status }) => status === 200, FIRST_ASSIGN_MS);
  expect(performance.now() - startedAt).toBeLessThan(FIRST_ASSIGN_MS);
  expect(fleet.cells.map(({ origin }) => origin)).toContain(granted.body.cellUrl);

  for (const { identity: old, grant } of before) {
    const asked = await until(
      'an old host granted',
      async () => askAssign(fleet.director.origin, await fleet.token(old), old, { reconnect: true }),
      ({ status }) => status === 200,
      FIRST_ASSIGN_MS,
    );
    expect(asked.body).toMatchObject({ cellUrl: grant.cellUrl, assignmentEpoch: grant.assignmentEpoch });
    await fleet.dial(old, grant);
  }
});
