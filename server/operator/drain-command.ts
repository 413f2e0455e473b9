import { setTimeout as sleep } from 'node:timers/promises';
import type { Environment } from '../config.ts';
import { Problem } from '../problem.ts';
import { FleetReader } from './fleet-command.ts';
import { ago, type FleetRow } from './fleet-table.ts';
import { Progress, type Standing } from './progress.ts';
import { findDatabase } from './session.ts';

export interface DrainCommandOptions {
  /** Seconds. Absent: 60. */
  grace?: number;
  /** Seconds. Absent: 60. */
  pace?: number;
  admission?: 'migration-only' | 'existing-only';
  cancel?: boolean;
}

interface DrainRow {
  current: boolean;
  age_ms: number;
  hosts: number;
  seated: number;
  promised: number;
  retiring: number;
}

const DEFAULT_SECONDS = 60;
const EVERY_MS = 500;
const INTERRUPTED = 130;

const DRAIN_SQL = `
select current, round(extract(epoch from age) * 1000)::bigint as age_ms, hosts, seated, promised, retiring
from relay_v1.drains where cell_id = $1`;

/** What the database answers, and what to do about it. */
const REFUSALS: Readonly<Record<string, string>> = {
  forbidden: 'this login is no member of relay_operator',
  cell_not_found: 'there is no such cell',
  cell_in_reserve_mode:
    'the cell is in reserve mode: set it to db first (relay_v1.set_admit_mode), or set it apart for a roll',
  drain_attempt_admission_enabled: 'the cell was made general again meanwhile',
  drain_attempt_not_found: 'the cell is not told to drain',
  source_cell_unavailable: 'no process of the cell was ever heard: there is nobody to tell',
  drain_migration_source_incarnation_mismatch:
    'hosts are still on their way off an older process of the cell: see relay_v1.open_migrations',
};

/** Drains a cell and shows how far it is, until it is empty; or takes the order back. Throws a {@link Problem}. */
export async function runDrain(cellId: string, options: DrainCommandOptions, env: Environment): Promise<void> {
  const reader = new FleetReader(findDatabase(env));
  try {
    const fleet = await reader.read();
    const cell = fleet.find(({ cell_id }) => cell_id === cellId);
    if (cell === undefined) {
      throw new Problem(
        `there is no cell "${cellId}"; there are ${fleet.map(({ cell_id }) => cell_id).join(', ') || 'none'}`,
      );
    }
    if (options.cancel) await cancel(reader, cell);
    else {
      const isNew = await order(reader, cell, fleet, options);
      await follow(reader, cell, isNew);
    }
  } finally {
    await reader.close();
  }
}

const drainOf = async (reader: FleetReader, { cell_id }: FleetRow) =>
  (await reader.rows<DrainRow>(DRAIN_SQL, [cell_id]))[0];

async function ask(reader: FleetReader, call: string, values: unknown[]): Promise<void> {
  const [row] = await reader.rows<{ answer: string }>(`select ${call} as answer`, values);
  const answer = row?.answer ?? 'nothing';
  if (answer !== 'ok') throw new Problem(`${REFUSALS[answer] ?? 'the database refused'} [${answer}]`);
}

async function cancel(reader: FleetReader, cell: FleetRow): Promise<void> {
  await ask(reader, 'relay_v1.cancel_drain($1)', [cell.cell_id]);
  console.log(`${cell.cell_id} is no longer told to drain; hosts that were told already go.`);
  if (cell.admission !== 'general') {
    console.log(
      `It is ${cell.admission}. To give it hosts again:\n` +
        `  orca-relay sql "select relay_v1.set_admission('${cell.cell_id}', 'general')"`,
    );
  }
}

/** Says what will happen, and orders it. False: it was ordered before. */
async function order(
  reader: FleetReader,
  cell: FleetRow,
  fleet: readonly FleetRow[],
  options: DrainCommandOptions,
): Promise<boolean> {
  const { cell_id } = cell;
  const before = await drainOf(reader, cell);
  if (before?.current && options.grace === undefined && options.pace === undefined) {
    console.log(`${cell_id} was told to drain ${ago(before.age_ms)} ago; this only shows how far it is.`);
    return false;
  }
  if (cell.admission === 'general' && options.admission === undefined) {
    throw new Problem(
      `${cell_id} is general: it would be given new hosts while it drains. Nothing was changed. Type one of\n` +
        `  orca-relay drain ${cell_id} --admission migration-only   to replace its process and go on with it\n` +
        `  orca-relay drain ${cell_id} --admission existing-only    to empty it for good`,
    );
  }
  const grace = options.grace ?? DEFAULT_SECONDS;
  const pace = options.pace ?? DEFAULT_SECONDS;
  console.log(await plan(reader, cell, fleet, grace, pace));
  if (options.admission !== undefined && options.admission !== cell.admission) {
    await ask(reader, 'relay_v1.set_admission($1, $2, $3)', [cell_id, options.admission, cell.admission_generation]);
    console.log(`${cell_id} is ${options.admission} now.`);
  }
  await ask(reader, 'relay_v1.start_drain($1, $2, $3)', [cell_id, grace * 1_000, pace * 1_000]);
  return true;
}

async function plan(
  reader: FleetReader,
  cell: FleetRow,
  fleet: readonly FleetRow[],
  grace: number,
  pace: number,
): Promise<string> {
  const [held] = await reader.rows<{ active: number; granted: number; units: number }>(
    'select active, granted, units from relay_v1.hosts_by_cell where cell_id = $1',
    [cell.cell_id],
  );
  const targets = fleet.filter(
    (other) =>
      other.cell_id !== cell.cell_id && other.state === 'live' && other.admission === 'general' && !other.draining,
  );
  const free = (of: readonly FleetRow[]) => of.reduce((sum, { free_units }) => sum + (free_units ?? 0), 0);
  const near = targets.filter(({ region }) => region === cell.region);
  const units = held?.units ?? 0;
  return [
    `${cell.cell_id} (${cell.region}, ${cell.state}) seats ${counted(held?.active ?? 0, 'host')} and has promised ${held?.granted ?? 0} more a seat: ${counted(units, 'unit')}.`,
    `Its process tells them one by one over ${pace} s, and cuts what each still holds ${grace} s after it was told.`,
    `They find room on ${counted(targets.length, 'other cell')}: ${free(near)} units in ${cell.region}, ${free(targets) - free(near)} elsewhere.`,
    ...(free(targets) < units
      ? ['That is less than there is to move: some hosts will be refused until there is room.']
      : []),
  ].join('\n');
}

const counted = (count: number, of: string) => `${count} ${of}${count === 1 ? '' : 's'}`;

async function follow(reader: FleetReader, cell: FleetRow, isNew: boolean): Promise<void> {
  const progress = new Progress(process.stdout);
  const leave = () => {
    progress.end();
    console.log(
      `${cell.cell_id} goes on draining. To look again: orca-relay drain ${cell.cell_id}\n` +
        `To take it back: orca-relay drain ${cell.cell_id} --cancel`,
    );
    process.exit(INTERRUPTED);
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, leave);
  let away = '';
  for (;;) {
    try {
      const drain = await drainOf(reader, cell);
      away = '';
      const over = ended(cell, drain, isNew);
      if (drain) progress.show(standingOf(drain));
      if (over !== null) {
        progress.end();
        if (over.failed) throw new DrainOver(over.words);
        console.log(over.words);
        return;
      }
    } catch (error) {
      if (error instanceof DrainOver || !(error instanceof Problem)) throw error;
      if (away === '') process.stderr.write(`\norca-relay: ${error.message}; the drain goes on, trying again\n`);
      away = error.message;
    }
    await sleep(EVERY_MS);
  }
}

function standingOf({ hosts, seated, promised, retiring }: DrainRow): Standing {
  const left = seated + promised;
  return {
    left,
    // hosts that were promised a seat just before may come on top
    total: Math.max(hosts, left, 1),
    words: `${left} of ${hosts} hosts left${retiring > 0 ? `, ${retiring} in their grace` : ''}`,
    isLast: left + retiring === 0,
  };
}

/** It ended otherwise than with an empty cell. */
class DrainOver extends Problem {}

function ended(cell: FleetRow, drain: DrainRow | undefined, isNew: boolean): { words: string; failed: boolean } | null {
  const { cell_id } = cell;
  if (drain === undefined) return { words: `the drain of ${cell_id} was taken back`, failed: true };
  if (!drain.current)
    return { words: `the process of ${cell_id} was replaced: the new one ignores the order`, failed: true };
  if (drain.seated + drain.promised + drain.retiring > 0) return null;
  const took = isNew ? ` after ${ago(drain.age_ms)}` : '';
  return { words: `${cell_id} is empty${took}: nobody holds a seat there.`, failed: false };
}
