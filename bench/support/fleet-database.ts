import { rmSync } from 'node:fs';
import pg from 'pg';
import { ensureDatabase, startPostgres, temporaryDataDir } from '../../server/dev/postgres.ts';
import { migrate } from '../../server/migrate.ts';

/** As many as a large fleet has. */
export const LIVE_CELLS = 30;
const DEAD_CELLS = 30;
const HOSTS = 100_000;
const HEARTBEAT_MS = 5_000;

/** A durable server of its own with a fleet on it: half of the cells are dead, and all their hosts are due to move. */
export interface FleetDatabase {
  url: string;
  connect(count: number): Promise<pg.Client[]>;
  /** Of a host that holds its lease on a live cell. */
  stickyHost(): [userId: string, relayHostId: string];
  /** Of a host whose cell is dead, each once until `moveBack`. */
  nextMover(): [userId: string, relayHostId: string];
  /** Of a row of `bench.plain`, for the bare functions. */
  plainRow(): [userId: string, relayHostId: string];
  /** Puts the hosts that moved back on dead cells, as if they had attached and their cells had died. */
  moveBack(): Promise<void>;
  stop(): Promise<void>;
}

export async function startFleetDatabase(): Promise<FleetDatabase> {
  const dataDir = temporaryDataDir();
  const server = await startPostgres({ dataDir, durable: true, maxConnections: 300 });
  const url = await ensureDatabase(server, 'bench');
  await migrate(url);
  // the heartbeats go on while hosts are moved back
  const owner = new pg.Pool({ connectionString: url, max: 2 });
  await owner.query(SEED);
  await owner.query('vacuum analyze');
  const heartbeats = setInterval(() => owner.query(HEARTBEAT), HEARTBEAT_MS);
  const anyOf = (prefix: string): [string, string] => {
    const n = 1 + Math.floor(Math.random() * HOSTS);
    return [`user-${n}`, `${prefix}-${n}`];
  };
  let moved = 0;
  return {
    url,
    connect: (count) =>
      Promise.all(
        Array.from({ length: count }, async () => {
          const client = new pg.Client({ connectionString: url });
          // a bench that fails stops its server with clients at work: the failure is to be seen, not theirs
          client.on('error', () => undefined);
          await client.connect();
          return client;
        }),
      ),
    stickyHost: () => anyOf('sticky'),
    plainRow: () => anyOf('plain'),
    nextMover() {
      moved++;
      if (moved > HOSTS) throw new Error('no host is left to move');
      return [`user-${moved}`, `mover-${moved}`];
    },
    async moveBack() {
      await owner.query(MOVE_BACK);
      await owner.query('vacuum analyze relay.assignment, relay.lease, relay.change, bench.plain');
      moved = 0;
    },
    async stop() {
      clearInterval(heartbeats);
      await owner.end();
      await server.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

const HEARTBEAT = `update relay.cell_runtime set heard_at = relay.now() where cell_id like 'live-%'`;

const MOVE_BACK = `
  update relay.assignment set cell_id = 'dead-' || 1 + abs(hashtext(relay_host_id)) % ${DEAD_CELLS}, epoch = epoch + 1
  where cell_id like 'live-%' and relay_host_id like 'mover-%';
  delete from relay.lease where relay_host_id like 'mover-%';
  -- pruned as the sweep does it: ids that are just gone would be gaps to whoever starts to read
  update relay.setting s set changes_pruned_to = coalesce((select max(c.id) from relay.change c), s.changes_pruned_to);
  truncate relay.change;
  ${HEARTBEAT};`;

const SEED = `
  insert into relay.cell (cell_id, url, region, capacity_units, registered_at)
  select k || '-' || n, 'https://' || k || '-' || n, 'region-' || n % 2, 100000, relay.now()
  from (values ('live', ${LIVE_CELLS}), ('dead', ${DEAD_CELLS})) v (k, count), generate_series(1, count) n;
  insert into relay.cell_runtime (cell_id, incarnation, started_at, ready, heard_at, enforced_units, inclusion_watermark)
  select c.cell_id, gen_random_uuid(), relay.now(), true,
    relay.now() - case when c.cell_id like 'dead-%' then interval '1 hour' else '0' end, 100, 5
  from relay.cell c;
  update relay.setting set hearing_since = relay.now() - interval '1 hour';
  insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
  select 'user-' || n, k || '-' || n, case k when 'sticky' then 'live-' else 'dead-' end || 1 + n % ${LIVE_CELLS}, 1, relay.now() + interval '1 hour'
  from unnest(array['sticky', 'mover']) k, generate_series(1, ${HOSTS}) n;
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, incarnation, generation, state, units, inclusion_watermark, expires_at)
  select a.user_id, a.relay_host_id, a.cell_id, 1, r.incarnation, 1, 'active', 1, 1, relay.now() + interval '1 day'
  from relay.assignment a join relay.cell_runtime r on r.cell_id = a.cell_id
  where a.relay_host_id like 'sticky-%';

  create schema bench;
  create table bench.plain (user_id text, relay_host_id text, moves bigint, at timestamptz,
    primary key (user_id, relay_host_id)) with (fillfactor = 80);
  insert into bench.plain select 'user-' || n, 'plain-' || n, 0, now() from generate_series(1, ${HOSTS}) n;
  create function bench.read_row(p_user_id text, p_relay_host_id text) returns bench.plain
  language plpgsql security definer set search_path = bench, pg_temp as $$
  declare
    v_row bench.plain;
  begin
    select p.* into v_row from bench.plain p where p.user_id = p_user_id and p.relay_host_id = p_relay_host_id;
    return v_row;
  end $$;
  create function bench.update_row(p_user_id text, p_relay_host_id text) returns bigint
  language plpgsql security definer set search_path = bench, pg_temp as $$
  declare
    v_moves bigint;
  begin
    update bench.plain p set moves = p.moves + 1, at = clock_timestamp()
    where p.user_id = p_user_id and p.relay_host_id = p_relay_host_id
    returning p.moves into v_moves;
    return v_moves;
  end $$;
  -- what relay_v1.assign would be if moves rang the doorbell in their own transaction
  create function bench.assign_and_ring(p_user_id text, p_relay_host_id text) returns relay_v1.assign_result
  language plpgsql security definer set search_path = relay, pg_temp as $$
  declare
    v_result relay_v1.assign_result;
  begin
    v_result := relay_v1.assign(p_user_id, p_relay_host_id);
    perform pg_notify('relay_doorbell', v_result.cell_id);
    return v_result;
  end $$;`;
