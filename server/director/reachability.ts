import { LIMITS } from '../../contract/limits.ts';
import type { CellRow } from '../sql-interface.ts';
import type { Liveness } from './feed-outcomes.ts';

/**
 * Whether this director's own polls say that a cell is dead (03, the director's verdict). A cell's polls must have gone
 * unanswered for long enough, and so few other cells may be failing beside it that neither the director's own network nor a
 * region's can be what failed. Time is given, never read.
 */

/** A pause between failures that is longer says that nobody looked: what follows is another streak. */
const STREAK_GAP_MS = 5_000;
const DEAD_FAILURES = 3;
const DEAD_AFTER_MS = 45_000;
/** A streak that began so long before a disruption owes nothing to it. */
const OWN_START_MS = 10_000;

export type PolledCell = Pick<CellRow, 'cell_id' | 'region' | 'capacity_units' | 'admit_mode'>;

/** What one poll said: a page of its feed, or how it ended otherwise. */
export type PollSign = 'page' | Liveness;

export const WITHHELD_REASONS = ['sample', 'fleet', 'region'] as const;
export type WithheldReason = (typeof WITHHELD_REASONS)[number];
/** What more than the cell itself may have failed. */
export type Disruption = Exclude<WithheldReason, 'sample'>;

export interface VerdictCounts {
  feedCells: number;
  failing: number;
  regionFeedCells: number;
  regionFailing: number;
}

export type Verdict =
  /** Its polls do not say so. */
  | { verdict: 'not-dead' }
  | ({ verdict: 'withheld'; reason: WithheldReason } & VerdictCounts)
  | ({ verdict: 'dead'; streakMs: number } & VerdictCounts);

interface Streak {
  startedAt: number;
  failures: number;
  lastAt: number;
}

interface CellState {
  /** It has served a page since this director started. */
  served: boolean;
  streak: Streak | null;
}

export class Reachability {
  readonly #states = new Map<string, CellState>();
  /** When the disruption under way began: of the whole fleet under null, of a region under its name. */
  readonly #disruptions = new Map<string | null, number>();
  /** The very cells that the last round polled. */
  #polled: ReadonlyMap<string, PolledCell> = new Map();
  #late = false;

  /** A poll of a cell has ended. */
  polled(cellId: string, sign: PollSign, now: number): void {
    const state = this.#states.get(cellId) ?? { served: false, streak: null };
    this.#states.set(cellId, state);
    if (sign === 'page') state.served = true;
    if (sign === 'page' || sign === 'answered') state.streak = null;
    // a director that is late itself cannot tell a cell's silence from its own
    if (sign === 'unanswered' && !this.#late) state.streak = extended(state.streak, now);
  }

  /**
   * A round of polls begins.
   * @param lateMs how much longer than an interval after the last one
   */
  round(cells: readonly PolledCell[], lateMs: number, now: number): void {
    this.#late = lateMs > LIMITS.feedPollMs;
    this.#polled = new Map(cells.map((cell) => [cell.cell_id, cell]));
    for (const [cellId, { streak }] of this.#states) {
      if (!this.#polled.has(cellId) && !isFailing(streak, now)) this.#states.delete(cellId);
    }
    this.#followDisruptions(now);
  }

  verdict(cellId: string, now: number): Verdict {
    const streak = this.#states.get(cellId)?.streak ?? null;
    if (streak === null || !isDeadStreak(streak, now)) return { verdict: 'not-dead' };
    const counts = this.#counts(cellId, now);
    const reason = this.#guard(cellId, counts) ?? this.#lasting(cellId);
    if (reason !== null) return { verdict: 'withheld', reason, ...counts };
    return { verdict: 'dead', streakMs: now - streak.startedAt, ...counts };
  }

  /**
   * Milliseconds until polls that go on failing make a dead streak of this cell's; null for one that answers, that has one
   * already, or whose verdict would be withheld.
   */
  deadInMs(cellId: string, now: number): number | null {
    const streak = this.#states.get(cellId)?.streak ?? null;
    if (streak === null || !isFailing(streak, now) || streak.failures < DEAD_FAILURES) return null;
    if ((this.#guard(cellId, this.#counts(cellId, now)) ?? this.#lasting(cellId)) !== null) return null;
    const leftMs = streak.startedAt + DEAD_AFTER_MS - now;
    return leftMs > 0 ? leftMs : null;
  }

  /** Of a cell that fails now, however long it has: whether its region or the fleet fails with it. Null for any other. */
  disruption(cellId: string, now: number): Disruption | null {
    if (!isFailing(this.#states.get(cellId)?.streak ?? null, now)) return null;
    const reason = this.#guard(cellId, this.#counts(cellId, now));
    return reason === 'sample' ? null : (reason ?? this.#lasting(cellId));
  }

  /** The first guard that withholds a verdict on the candidate. */
  #guard(candidate: string, counts: VerdictCounts): WithheldReason | null {
    return this.#isSample(candidate, counts) ? 'sample' : (brokenBy(counts)[0] ?? null);
  }

  #isSample(candidate: string, { feedCells }: VerdictCounts): boolean {
    const carries = (this.#polled.get(candidate)?.capacity_units ?? 0) > 0;
    return !carries || feedCells < LIMITS.verdictMinFeedCells;
  }

  /** A disruption ends only with a round, and until then it withholds. */
  #lasting(candidate: string): Disruption | null {
    if (this.#disruptions.has(null)) return 'fleet';
    const region = this.#polled.get(candidate)?.region;
    return region !== undefined && this.#disruptions.has(region) ? 'region' : null;
  }

  #counts(candidate: string, now: number): VerdictCounts {
    const region = this.#polled.get(candidate)?.region;
    const counts = { feedCells: 0, failing: 0, regionFeedCells: 0, regionFailing: 0 };
    for (const [cellId, cell] of this.#polled) {
      const state = this.#states.get(cellId);
      if (cell.capacity_units <= 0 || !(state?.served || cellId === candidate)) continue;
      const failing = isFailing(state?.streak ?? null, now) ? 1 : 0;
      counts.feedCells += 1;
      counts.failing += failing;
      if (cell.region !== region) continue;
      counts.regionFeedCells += 1;
      counts.regionFailing += failing;
    }
    return counts;
  }

  #followDisruptions(now: number): void {
    const disrupted = new Set<string | null>();
    for (const [cellId, cell] of this.#polled) {
      if (!isFailing(this.#states.get(cellId)?.streak ?? null, now)) continue;
      const counts = this.#counts(cellId, now);
      if (this.#isSample(cellId, counts)) continue;
      // a region does not recover by having the fleet for company
      for (const scope of brokenBy(counts)) disrupted.add(scope === 'fleet' ? null : cell.region);
    }
    for (const [scope, startedAt] of this.#disruptions) {
      if (disrupted.has(scope)) continue;
      this.#disruptions.delete(scope);
      this.#startAnew(scope, startedAt, now);
    }
    for (const scope of disrupted) if (!this.#disruptions.has(scope)) this.#disruptions.set(scope, now);
  }

  /** What failed during a disruption is no evidence after it, but for streaks that are plainly older. */
  #startAnew(scope: string | null, disruptedAt: number, now: number): void {
    for (const [cellId, state] of this.#states) {
      if (state.streak === null || !isFailing(state.streak, now)) continue;
      if (scope !== null && this.#polled.get(cellId)?.region !== scope) continue;
      if (state.streak.startedAt < disruptedAt - OWN_START_MS) continue;
      state.streak = { startedAt: now, failures: 0, lastAt: state.streak.lastAt };
    }
  }
}

/** What fails with so many, in the order in which it is said. */
function brokenBy({ feedCells, failing, regionFeedCells, regionFailing }: VerdictCounts): Disruption[] {
  return [
    ...(failing * 3 > feedCells ? (['fleet'] as const) : []),
    ...(regionFailing * 2 >= regionFeedCells ? (['region'] as const) : []),
  ];
}

function extended(streak: Streak | null, now: number): Streak {
  if (streak === null || now - streak.lastAt > STREAK_GAP_MS) return { startedAt: now, failures: 1, lastAt: now };
  return { ...streak, failures: streak.failures + 1, lastAt: now };
}

function isFailing(streak: Streak | null, now: number): boolean {
  return streak !== null && now - streak.lastAt <= STREAK_GAP_MS;
}

function isDeadStreak(streak: Streak | null, now: number): boolean {
  if (streak === null || !isFailing(streak, now)) return false;
  return streak.failures >= DEAD_FAILURES && now - streak.startedAt >= DEAD_AFTER_MS;
}
