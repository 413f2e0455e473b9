import { LIMITS } from '../../contract/index.ts';
import type { Clock } from '../clock.ts';
import { DatabaseError } from '../database.ts';
import type { AdmitMode } from '../sql-interface.ts';
import { type CellCore, callerOf } from './cell-core.ts';

/** How old the row may become while its mode stands. */
const REFRESH_MS = 15_000;
/** A slot is counted for ten minutes: by half of them it is said anew, however busy the pool is. */
const FORCED_REFRESH_MS = LIMITS.tripSlotTtlMs / 2;
const FAILURE_LOG_MS = 60_000;

export interface RowText {
  mode: AdmitMode;
  /** On the way back to db: hosts that hold no lease yet. */
  unleased: number | null;
}

/** What the row is to say. */
export interface RowWish extends RowText {
  /** Said again every 15 s; else once. */
  refreshed: boolean;
  /** Holds a slot by what the row says. */
  tripped: boolean;
}

export interface RowFacts {
  /** Null leaves the row alone. */
  wish: RowWish | null;
  /** What it says for sure; null if a write was not answered. */
  known: RowText | null;
  /** Since the last write that was acknowledged. */
  ageMs: number;
  writing: boolean;
  waiters: number;
}

/** `reserve-mode` 3.3: on change, else every 15 s; one write at a time; after everybody who waits for the pool. */
export function decideRowWrite({ wish, known, ageMs, writing, waiters }: RowFacts): RowText | null {
  if (wish === null || writing) return null;
  const { mode, unleased, refreshed, tripped } = wish;
  const changed = known?.mode !== mode || known.unleased !== unleased;
  const due = changed || (refreshed && ageMs >= REFRESH_MS);
  const yields = waiters > 0 && !(tripped && ageMs >= FORCED_REFRESH_MS);
  return due && !yields ? { mode, unleased } : null;
}

/** While a machine is suspended its monotonic clock stands, and the database's does not: the later of two counts. */
interface Instant {
  monotonic: number;
  wall: number;
}

function instantOf(clock: Clock): Instant {
  return { monotonic: clock.now(), wall: clock.wallNow() };
}

export type ClaimAnswer = 'granted' | 'full' | 'busy' | 'stale_cell_incarnation' | 'unanswered';

/**
 * The cell's own row of `cell_effective_mode`, which says how its process really admits hosts. Everything that writes it
 * goes through here, one at a time: a write that is under way could land after a claim and hide the slot that it won.
 */
export class EffectiveRow {
  readonly #coreOf: () => CellCore;
  #known: RowText | null = null;
  #settled = true;
  /** When the last write that was acknowledged was sent; that it was written later errs on the safe side. */
  #acknowledgedAt: Instant | undefined;
  #writing = false;
  #failureLoggedAt = Number.NEGATIVE_INFINITY;

  /** The core holds its modes, and these their row, so it asks for the core. */
  constructor(core: () => CellCore) {
    this.#coreOf = core;
  }

  get writing(): boolean {
    return this.#writing;
  }

  /** Whether the last write was answered: none is on its way any more. */
  get settled(): boolean {
    return this.#settled && !this.#writing;
  }

  /** Since the last write that was acknowledged, or since the first look at the row. */
  get ageMs(): number {
    const now = instantOf(this.#coreOf().clock);
    this.#acknowledgedAt ??= now;
    const since = this.#acknowledgedAt;
    return Math.max(now.monotonic - since.monotonic, now.wall - since.wall);
  }

  /** Writes if it is time to. Nobody waits for it, and it never throws. */
  follow(wish: RowWish | null): void {
    const { db, metrics } = this.#coreOf();
    const facts = { wish, known: this.#known, ageMs: this.ageMs, writing: this.#writing, waiters: db.waiters() };
    const text = decideRowWrite(facts);
    if (text === null) return;
    void this.#write('record_effective_mode', text, text).then((outcome) => {
      metrics.rowWrites.inc({ mode: text.mode, outcome });
    });
  }

  /** Asks for a trip slot; only while nothing is being written. Never throws; a claim without an answer may have won. */
  async claim(slots: number): Promise<ClaimAnswer> {
    const answer = await this.#write('claim_trip_slot', { mode: 'db', unleased: null }, { slots });
    return answer === 'ok' ? 'granted' : answer;
  }

  async #write<F extends 'record_effective_mode' | 'claim_trip_slot'>(
    fn: F,
    text: RowText,
    params: F extends 'claim_trip_slot' ? { slots: number } : RowText,
  ): Promise<'ok' | Exclude<ClaimAnswer, 'granted'>> {
    const core = this.#coreOf();
    const askedAt = instantOf(core.clock);
    this.#writing = true;
    try {
      const answer = await core.db.call(fn, { ...callerOf(core), ...params } as never);
      this.#settled = true;
      if (answer === 'stale_cell_incarnation') core.standDown();
      if (answer !== 'ok' && answer !== 'granted') return answer;
      this.#known = text;
      this.#acknowledgedAt = askedAt;
      return 'ok';
    } catch (error) {
      this.#settled = false;
      if (this.#known?.mode !== text.mode) this.#known = null;
      this.#logFailure(text.mode, error);
      return 'unanswered';
    } finally {
      this.#writing = false;
    }
  }

  #logFailure(mode: AdmitMode, error: unknown): void {
    const { clock, log } = this.#coreOf();
    if (clock.now() - this.#failureLoggedAt < FAILURE_LOG_MS) return;
    this.#failureLoggedAt = clock.now();
    const reason = error instanceof DatabaseError ? error.kind : 'other';
    log.warn({ event: 'orca_relay_cell_admit_effective_write_failed', mode, reason, error });
  }
}
