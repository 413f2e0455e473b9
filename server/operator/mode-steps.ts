import { type Clock, systemClock } from '../clock.ts';
import { DatabaseError } from '../database-errors.ts';
import { Problem } from '../problem.ts';
import type { AdmitMode } from '../sql-interface.ts';
import { DatabaseAway } from './session.ts';

/** A statement, as an operator's session or a pool sends it. */
export type Ask = <R>(text: string, values?: readonly unknown[]) => Promise<R[]>;

/** A row of the view relay_v1.modes. */
export interface ModeRow {
  cell_id: string;
  region: string;
  admit_mode: AdmitMode;
  flag_mode: AdmitMode;
  flags: Record<string, unknown>;
  flags_generation: number;
  /** Of the process that was heard last; null: it never was in reserve mode. */
  effective_mode: AdmitMode | null;
  unleased: number | null;
  seated: number;
  state: 'live' | 'not ready' | 'unheard' | 'never heard';
  polled: boolean;
}

export interface SwitchOptions {
  onStep: (text: string) => void;
  /** While hosts are given their leases: so many have none yet, of so many at most. */
  onProgress?: (unleased: number, most: number) => void;
  signal?: AbortSignal;
  clock?: Clock;
}

/** Milliseconds. */
const MODE_WAITS = {
  /** Directors have read the record by then. */
  record: 10_000,
  /** A process takes flags within 6 s of their being written, with a second to say so. */
  flags: 30_000,
  /** A process that was in reserve mode says how it left; one that says nothing for so long never was. */
  silence: 15_000,
  look: 500,
  /** Hosts are leased a few a second at the slowest. */
  stalled: 8 * 60_000,
  most: 50 * 60_000,
} as const;

const MODES_SQL = `
select cell_id, region, admit_mode, flag_mode, flags, flags_generation, effective_mode, unleased, seated, state, polled
from relay_v1.modes order by cell_id`;

/** What the database answers, and what to do about it. */
const REFUSALS: Readonly<Record<string, string>> = {
  forbidden: 'this login is no member of relay_operator',
  cell_not_found: 'there is no such cell',
  cell_has_open_migration: 'hosts are on their way off or onto the cell: see relay_v1.open_migrations',
  cell_has_open_drain: 'the cell is told to drain: wait, or take the order back (orca-relay drain CELL --cancel)',
  cell_flags_admit_reserve: 'somebody set the flags to reserve meanwhile',
  cell_admits_reserve: 'its process still admits from memory',
  cell_flags_generation_mismatch: 'somebody wrote the flags meanwhile: look, and run it again',
  cell_flags_invalid: 'one of the flags that are there has a bad value: see relay_v1.modes',
  cell_not_in_reserve_mode: 'somebody recorded db meanwhile',
  cell_tripped: 'it has tripped: orca-relay mode CELL rearm',
};

export class Interrupted extends Problem {}

/**
 * Brings a cell to a mode, in the order that loses nobody, from wherever an earlier run of it ended.
 * Throws a {@link Problem} that says how far it came; {@link Interrupted} by the signal, between two steps.
 */
export async function switchMode(ask: Ask, cellId: string, mode: AdmitMode, options: SwitchOptions): Promise<void> {
  const work = new ModeWork(ask, cellId, options);
  await (mode === 'reserve' ? toReserve(work) : toDatabase(work));
}

/** One cell, what is asked about it, and the waits between. */
export class ModeWork {
  readonly cellId: string;
  readonly options: SwitchOptions;
  readonly clock: Clock;
  readonly #ask: Ask;

  constructor(ask: Ask, cellId: string, options: SwitchOptions) {
    this.#ask = ask;
    this.cellId = cellId;
    this.options = options;
    this.clock = options.clock ?? systemClock;
  }

  step(text: string): void {
    this.options.onStep(text);
  }

  async row(): Promise<ModeRow> {
    const rows = await this.#ask<ModeRow>(MODES_SQL);
    const row = rows.find(({ cell_id }) => cell_id === this.cellId);
    if (row !== undefined) return row;
    const there = rows.map(({ cell_id }) => cell_id).join(', ') || 'none';
    throw new Problem(`there is no cell "${this.cellId}"; there are ${there}`);
  }

  /** What a function of operators answers: `ok`, or why not. */
  async answer(call: string, values: readonly unknown[]): Promise<string> {
    if (this.options.signal?.aborted) throw this.#interrupted();
    const [row] = await this.#ask<{ answer: string }>(`select relay_v1.${call} as answer`, values);
    return row?.answer ?? 'nothing';
  }

  record(mode: AdmitMode): Promise<string> {
    return this.answer('set_admit_mode($1, $2)', [this.cellId, mode]);
  }

  /** The other flags stay. */
  flag(row: ModeRow, mode: AdmitMode): Promise<string> {
    const flags = JSON.stringify({ ...row.flags, admitMode: mode });
    return this.answer('set_cell_flags($1, $2, $3)', [this.cellId, flags, row.flags_generation]);
  }

  #interrupted(): Interrupted {
    return new Interrupted(`${this.cellId}: interrupted`);
  }

  pause(ms: number): Promise<void> {
    const { signal } = this.options;
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.clock.clearTimeout(timer);
        reject(this.#interrupted());
      };
      const timer = this.clock.setTimeout(() => {
        signal?.removeEventListener('abort', stop);
        resolve();
      }, ms);
      if (signal?.aborted) stop();
      else signal?.addEventListener('abort', stop, { once: true });
    });
  }

  /** The row as it is now and again, until `isOver` says so. A database that is away is asked again. */
  async watch(isOver: (row: ModeRow) => boolean): Promise<ModeRow> {
    for (let away = false; ; ) {
      try {
        const row = await this.row();
        if (away) this.step('the database answers again');
        away = false;
        if (isOver(row)) return row;
      } catch (error) {
        if (!isAway(error)) throw error;
        if (!away) this.step(`${error.message}; nothing is lost, asking again`);
        away = true;
      }
      await this.pause(MODE_WAITS.look);
    }
  }
}

const isAway = (error: unknown): error is Error =>
  error instanceof DatabaseAway || (error instanceof DatabaseError && error.retryable);

export const refusal = (answer: string): string => `${REFUSALS[answer] ?? 'the database refused'} [${answer}]`;

export function expectOk(answer: string): void {
  if (answer !== 'ok') throw new Problem(refusal(answer));
}

async function toReserve(work: ModeWork): Promise<void> {
  const { cellId } = work;
  const row = await work.row();
  if (row.admit_mode === 'reserve' && row.flag_mode === 'reserve') {
    if (row.effective_mode === 'db') {
      throw new Problem(`${cellId} heard from no director and fell back to db: orca-relay mode ${cellId} rearm`);
    }
  } else {
    if (row.state !== 'live') throw new Problem(`${cellId} is ${row.state}: nothing was changed`);
    expectOk(await work.record('reserve'));
    work.step(`recorded as reserve: the database places nobody there any more`);
    await work.pause(MODE_WAITS.record);
    await orRestore(work, await work.record('reserve'));
    const now = await work.row();
    await orRestore(work, await work.flag(now, 'reserve'));
    work.step(`flags say reserve (generation ${now.flags_generation + 1})`);
  }
  const since = work.clock.now();
  await work.watch(({ effective_mode }) => {
    if (effective_mode === 'reserve') return true;
    if (work.clock.now() - since < MODE_WAITS.flags) return false;
    throw new Problem(
      `the process of ${cellId} has not said in ${MODE_WAITS.flags / 1_000} s that it took the flags: it may be cut off from the database. ` +
        `Run it again to look, or take it back: orca-relay mode ${cellId} db`,
    );
  });
  work.step(`${cellId} admits from bookings and memory`);
}

/** The record goes before the flags: refused between the two, it is taken back. */
async function orRestore(work: ModeWork, answer: string): Promise<void> {
  if (answer === 'ok') return;
  const restored = await work.record('db');
  const now = restored === 'ok' ? 'db is recorded again' : `and db could not be recorded again: ${refusal(restored)}`;
  throw new Problem(`${refusal(answer)}; ${now}`);
}

async function toDatabase(work: ModeWork): Promise<void> {
  const { cellId } = work;
  const row = await work.row();
  const unheeded = row.flag_mode === 'db' && isUp(row) && isUnmoved(row);
  if (row.admit_mode === 'db' && row.flag_mode === 'db' && !unheeded) {
    work.step(`${cellId} is in db mode`);
    return;
  }
  // a process that took other flags of this generation, which a failover lost, takes those of the next
  if (row.flag_mode === 'reserve' || unheeded) {
    expectUp(row);
    expectOk(await work.flag(row, 'db'));
    work.step(`flags say db (generation ${row.flags_generation + 1}): each host that it seats is given a lease`);
  }
  for (let answer = 'cell_admits_reserve'; answer === 'cell_admits_reserve'; ) {
    await untilLeased(work);
    answer = await work.record('db');
    if (answer !== 'cell_admits_reserve') expectOk(answer);
  }
  work.step(`recorded as db: ${cellId} admits by the database`);
}

const isUp = ({ state }: ModeRow): boolean => state === 'live' || state === 'not ready';

/** Its process says that it admits from memory, and not that it is on its way out of that. */
const isUnmoved = (row: ModeRow): boolean => row.effective_mode === 'reserve' && row.unleased === null;

function expectUp(row: ModeRow): void {
  if (isUp(row)) return;
  const { cell_id, state } = row;
  throw new Problem(
    `${cell_id} is ${state}: nobody gives its hosts their leases. It stays recorded as reserve, which keeps them where they are. ` +
      `Wait for it, or if it is gone for good: orca-relay mode ${cell_id} db --break-glass`,
  );
}

/** Until the process says that it runs on the database and all its hosts have leases. */
async function untilLeased(work: ModeWork): Promise<void> {
  const { clock, options } = work;
  const began = clock.now();
  let changedAt = began;
  let last: number | null = null;
  let most = 0;
  await work.watch((row) => {
    expectUp(row);
    const now = clock.now();
    const unleased = row.unleased ?? 0;
    if (unleased !== last) changedAt = now;
    last = unleased;
    most = Math.max(most, unleased);
    if (most > 0) options.onProgress?.(unleased, most);
    // null beside db: it has just fallen back, and has yet to count
    if (row.effective_mode === 'db' && row.unleased === 0) return true;
    if (row.effective_mode === null && now - began >= MODE_WAITS.silence) return true;
    if (isUnmoved(row) && now - began >= MODE_WAITS.flags) {
      throw new Problem(
        `the process of ${work.cellId} has not said in ${MODE_WAITS.flags / 1_000} s that it took the flags. Nobody is disconnected. ` +
          'Run it again: it writes them anew',
      );
    }
    if (now - changedAt < MODE_WAITS.stalled && now - began < MODE_WAITS.most) return false;
    throw new Problem(
      `${unleased} hosts of ${work.cellId} have no lease yet and it does not go on; see the cell's log. Nobody is disconnected; ` +
        'it stays recorded as reserve. Run it again to go on waiting',
    );
  });
}
