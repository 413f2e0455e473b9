import type { Database } from '../database.ts';
import type { Admission, AdmitMode, Change } from '../sql-interface.ts';
import { changeWords } from './change-words.ts';

/** What the fleet page shows, as of one statement. Ages and waits in milliseconds. */
export interface FleetSnapshot {
  cells: FleetCell[];
  drains: FleetDrain[];
  migrations: FleetMigrations[];
  fences: FleetFence[];
  changes: FleetChange[];
}

export interface FleetCell {
  id: string;
  region: string;
  state: 'live' | 'not ready' | 'unheard' | 'never heard';
  admission: Admission;
  mode: AdmitMode;
  effective_mode: AdmitMode | null;
  load: number | null;
  limit: number;
  capped: boolean;
  heard: number | null;
  /** Since it was set apart for a roll. */
  rolling: number | null;
  draining: boolean;
}

export interface FleetDrain {
  cell: string;
  /** False: the process that was told is gone. */
  current: boolean;
  age: number;
  grace: number;
  pace: number;
  hosts: number;
  /** With a seat, or promised one. */
  here: number;
  retiring: number;
  told: number | null;
  progress: number;
}

/** Open migrations from one cell to another. */
export interface FleetMigrations {
  from: string;
  to: string;
  hosts: number;
  registered: number;
  pinned: number;
  oldest: number;
}

export interface FleetFence {
  cell: string;
  state: string;
  fenced: boolean;
  expires: number | null;
}

export interface FleetChange {
  id: number;
  age: number;
  host: string | null;
  from: string | null;
  to: string | null;
  epoch: number | null;
  words: string;
}

type ChangeRow = Omit<FleetChange, 'words'> & Pick<Change, 'kind' | 'rule' | 'detail'>;
type Row = { fleet: Omit<FleetSnapshot, 'changes'> & { changes: ChangeRow[] } };

const READ_TIMEOUT_MS = 3_000;
const ms = (interval: string) => `round(extract(epoch from ${interval}) * 1000)::bigint`;

/** Grants and ends of leases come with every host that connects: too many to be news. One statement, so that all is of one moment. */
const SNAPSHOT = `
select json_build_object(
  'cells', (select coalesce(json_agg(c), '[]') from (
    select cell_id as id, region, state, admission, admit_mode as mode, effective_mode, load, unit_limit as "limit", capped,
      ${ms('heard_age')} as heard, ${ms('roll_age')} as rolling, draining
    from relay_v1.fleet order by region, cell_id) c),
  'drains', (select coalesce(json_agg(d), '[]') from (
    select cell_id as cell, current, ${ms('age')} as age, grace_ms as grace, pace_ms as pace, hosts,
      seated + promised as here, retiring, told, progress
    from relay_v1.drains) d),
  'migrations', (select coalesce(json_agg(m), '[]') from (
    select source_cell as "from", target_cell as "to", count(*) as hosts, count(*) filter (where registered) as registered,
      count(*) filter (where pinned) as pinned, ${ms('max(age)')} as oldest
    from relay_v1.open_migrations group by source_cell, target_cell order by count(*) desc, 1, 2 limit 50) m),
  'fences', (select coalesce(json_agg(f), '[]') from (
    select cell_id as cell, state, fenced, ${ms('expires_in')} as expires from relay_v1.fences) f),
  'changes', (select coalesce(json_agg(r), '[]') from (
    select id, ${ms('age')} as age, kind, host, from_cell as "from", to_cell as "to", epoch, rule, detail
    from relay_v1.recent_changes where kind not in ('granted', 'lease_ended', 'migration') limit 25) r)
) as fleet`;

/** @throws DatabaseError */
export async function readFleetSnapshot(db: Pick<Database, 'query'>): Promise<FleetSnapshot> {
  const [row] = await db.query<Row>(SNAPSHOT, [], { timeoutMs: READ_TIMEOUT_MS });
  if (row === undefined) throw new Error('a select without FROM answered no row');
  const { changes, ...rest } = row.fleet;
  return {
    ...rest,
    changes: changes.map(({ kind, rule, detail, ...change }) => ({
      ...change,
      words: changeWords({ kind, rule, detail, from_cell: change.from, to_cell: change.to }),
    })),
  };
}
