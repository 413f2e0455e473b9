import type { Change } from '../../server/sql-interface.ts';
import type { FreshDatabase } from '../support/database.ts';

type Row = Pick<Change, 'id' | 'kind' | 'from_cell' | 'to_cell' | 'relay_host_id' | 'epoch'>;

/** What a caller was granted, and the floor that it gave. */
export interface Granted {
  host: string;
  floor: number;
  cellId: string;
  epoch: number;
}

/**
 * What the change log says about every host, held against the promises: epochs strictly rise from 1 (P1), each epoch
 * belongs to one cell (P2), a move leaves the cell that the host was on, the last placement is the row, and nobody was
 * granted what the log does not know or what is below its floor. And what no foreign key forbids: no stray lease, no host
 * on an unknown cell. Returns what is wrong, a line each.
 */
export async function historyProblems(
  db: Pick<FreshDatabase, 'query'>,
  granted: readonly Granted[] = [],
): Promise<string[]> {
  const changes = await db.query<Row>(
    `select c.id, c.kind, c.from_cell, c.to_cell, c.relay_host_id, c.epoch from relay.change c
     where c.relay_host_id is not null order by c.id`,
  );
  const rows = await db.query<{ relay_host_id: string; cell_id: string; epoch: number }>(
    'select a.relay_host_id, a.cell_id, a.epoch from relay.assignment a',
  );
  const byHost = new Map<string, Row[]>(rows.map(({ relay_host_id }) => [relay_host_id, []]));
  for (const change of changes) byHost.get(change.relay_host_id ?? '')?.push(change);
  const homes = new Map<string, Map<number, string>>();
  const problems = rows.flatMap(({ relay_host_id, cell_id, epoch }) => {
    const { problems, last, cells } = follow(byHost.get(relay_host_id) ?? []);
    homes.set(relay_host_id, cells);
    if (last.cell !== cell_id || last.epoch !== epoch) {
      problems.push(`the row says ${cell_id}@${epoch}, the log ${last.cell}@${last.epoch}`);
    }
    return problems.map((problem) => `${relay_host_id}: ${problem}`);
  });
  for (const { host, floor, cellId, epoch } of granted) {
    if (epoch < floor) problems.push(`${host}: granted ${cellId}@${epoch} below the floor ${floor}`);
    if (homes.get(host)?.get(epoch) !== cellId)
      problems.push(`${host}: granted ${cellId}@${epoch}, which the log does not know`);
  }
  return [...problems, ...(await strays(db))];
}

async function strays(db: Pick<FreshDatabase, 'query'>): Promise<string[]> {
  const rows = await db.query<{ problem: string }>(
    `select format('%s: a %s lease on %s@%s, the row says %s@%s', l.relay_host_id, l.state, l.cell_id, l.epoch, a.cell_id,
       a.epoch) as problem
     from relay.lease l
     left join relay.assignment a on a.user_id = l.user_id and a.relay_host_id = l.relay_host_id
     where a.cell_id is null or (l.state <> 'retiring' and (l.cell_id, l.epoch) <> (a.cell_id, a.epoch))
     union all
     select format('%s: on %s, which is no cell', a.relay_host_id, a.cell_id)
     from relay.assignment a
     where not exists (select from relay.cell c where c.cell_id = a.cell_id)`,
  );
  return rows.map(({ problem }) => problem);
}

interface Followed {
  problems: string[];
  last: { cell: string | null; epoch: number };
  /** Which cell each epoch was given to. */
  cells: Map<number, string>;
}

/** Every kind of change that gives a host a home. */
const HOMING: ReadonlySet<Row['kind']> = new Set(['placed', 'moved', 'recorded']);

function follow(changes: readonly Row[]): Followed {
  const problems: string[] = [];
  const cells = new Map<number, string>();
  let last: Followed['last'] = { cell: null, epoch: 0 };
  for (const { kind, from_cell, to_cell, epoch } of changes) {
    if (HOMING.has(kind)) {
      if ((epoch ?? 0) <= last.epoch) problems.push(`epoch ${epoch} after ${last.epoch}`);
      if (kind !== 'placed' && from_cell !== last.cell) problems.push(`${kind} from ${from_cell}, was on ${last.cell}`);
      if (kind === 'placed' && last.cell !== null) problems.push('placed twice');
      if (cells.has(epoch ?? 0) && cells.get(epoch ?? 0) !== to_cell) problems.push(`epoch ${epoch} on two cells`);
      last = { cell: to_cell, epoch: epoch ?? 0 };
      cells.set(last.epoch, to_cell ?? '');
    } else if (kind === 'granted' && (to_cell !== last.cell || epoch !== last.epoch)) {
      problems.push(`granted on ${to_cell}@${epoch}, was on ${last.cell}@${last.epoch}`);
    }
  }
  return { problems, last, cells };
}
