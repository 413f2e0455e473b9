import type pg from 'pg';
import type { FleetDatabase } from './fleet-database.ts';

const ASSIGN = 'select * from relay_v1.assign(user_id => $1, relay_host_id => $2)';

async function mustMove(answer: Promise<pg.QueryResult>): Promise<void> {
  const [row] = (await answer).rows as { outcome: string; moved: boolean }[];
  if (row?.outcome !== 'granted' || !row.moved) throw new Error(`no move: ${JSON.stringify(row)}`);
}

export const move = (fleet: FleetDatabase) => (client: pg.Client) =>
  mustMove(client.query({ name: 'move', text: ASSIGN, values: fleet.nextMover() }));

export const moveAndRing = (fleet: FleetDatabase) => (client: pg.Client) =>
  mustMove(
    client.query({ name: 'ring', text: 'select * from bench.assign_and_ring($1, $2)', values: fleet.nextMover() }),
  );

export const sticky = (fleet: FleetDatabase) => (client: pg.Client) =>
  client.query({ name: 'sticky', text: ASSIGN, values: fleet.stickyHost() });

export const readRow = (fleet: FleetDatabase) => (client: pg.Client) =>
  client.query({ name: 'read', text: 'select * from bench.read_row($1, $2)', values: fleet.plainRow() });

export const updateRow = (fleet: FleetDatabase) => (client: pg.Client) =>
  client.query({ name: 'update', text: 'select * from bench.update_row($1, $2)', values: fleet.plainRow() });

/** What a move does in one call, as a process would do it that keeps its logic to itself: a statement a round trip. */
export const moveByRoundTrips = (fleet: FleetDatabase) => async (client: pg.Client) => {
  const [user, host] = fleet.nextMover();
  const run = (name: string, text: string, ...values: unknown[]) => client.query({ name, text, values });
  const decide = (name: string) =>
    run(
      name,
      `select d.* from (select row($1::text, $2::text, null, 'host', null, null, null, null, null)::relay.ask as ask,
         relay.now() as now) q, relay.decide_assign(q.ask, relay.read_home(q.ask, q.now), q.now) d`,
      user,
      host,
    );
  await run('rt-begin', 'begin');
  const decided = (await decide('rt-decide')).rows[0];
  await run(
    'rt-lock',
    'select a.epoch from relay.assignment a where a.user_id = $1 and a.relay_host_id = $2 for no key update',
    user,
    host,
  );
  const target = (
    await run(
      'rt-target',
      'select t.* from relay.choose_target($1, array[$2], relay.now()) t',
      decided.target_region,
      decided.excluded,
    )
  ).rows[0];
  for (const latch of [target.latch, decided.latch].sort((a, b) => a - b)) {
    await run('rt-latch', 'select pg_advisory_xact_lock_shared(relay.latch_space(), $1)', latch);
  }
  await decide('rt-decide');
  await run('rt-room', 'select relay.target_room($1, relay.now())', target.cell_id);
  const epoch = (await run('rt-mint', 'select relay.mint_epoch($1, null) as epoch', decided.epoch)).rows[0].epoch;
  await run('rt-delete', 'delete from relay.lease where user_id = $1 and relay_host_id = $2', user, host);
  await run('rt-abort', 'select relay.abort_migration($1, $2, $3, relay.now())', user, host, epoch);
  await run(
    'rt-update',
    'update relay.assignment set cell_id = $3, epoch = $4, last_activity_at = relay.now() where user_id = $1 and relay_host_id = $2',
    user,
    host,
    target.cell_id,
    epoch,
  );
  await run(
    'rt-change',
    `insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, at)
     values ('moved', $1, $2, $3, $4, $5, $6, relay.now())`,
    decided.cell_id,
    target.cell_id,
    user,
    host,
    epoch,
    decided.rule,
  );
  await run(
    'rt-lease',
    `insert into relay.lease (user_id, relay_host_id, cell_id, epoch, state, units, expires_at)
     values ($1, $2, $3, $4, 'granted', 1, relay.now() + interval '90 s')`,
    user,
    host,
    target.cell_id,
    epoch,
  );
  await run('rt-commit', 'commit');
};
