import type { ReservePlacement } from '../config.ts';
import type { HostFacts } from './host-facts.ts';
import type { FeedStatus } from './seat-view.ts';

/**
 * What a director does about a host that asks (reserve-mode 1.4): a table from top to bottom, whose first row that matches
 * wins. It decides on what is known, and asks for what it needs to know by a step of its own.
 */

/** How long after the start anything may be put off because a cell has yet to tell its seats. */
export const GATE_MS = 30_000;
const UNKNOWN_READ_MS = 2_000;
/** Where memory would do, but may not be the last word. */
const DOUBTFUL_READ_MS = 1_000;

export type RowRead = 'not-yet' | 'done' | 'failed';

export interface Situation {
  mode: ReservePlacement;
  /** Some cell is in reserve mode, by its feed or its row. */
  reserveCells: boolean;
  facts: HostFacts;
  rowRead: RowRead;
  poolWaiters: number;
  /** Every required cell has told its seats once. */
  complete: boolean;
  sinceStartMs: number;
  /** The cell where the host was last; null if it was nowhere. A cell that is not polled has no status. */
  last: {
    status: FeedStatus | null;
    reserve: boolean;
    /** It does not answer, and its region or the fleet with it. */
    disrupted: boolean;
  } | null;
  /** Of the cell of `facts.rejoin`; null when it takes no hosts now, or is not heard. */
  home: { incarnation: string; hasRoom: boolean } | null;
}

export type RetryReason = 'map-incomplete' | 'database';

export type Step =
  | { do: 'read-row'; timeoutMs: number }
  | { do: 'retry'; reason: RetryReason; seconds: number }
  /** Answer the place of `facts.rejoin` as it is. */
  | { do: 'remember' }
  /** Book that place again; where that fails, as `book`. */
  | { do: 'rebook' }
  /** Book a place; without one the database, or a later time. */
  | { do: 'book' }
  /**
   * The database first; a booking only if it would place the host, and the database again without one. So is a host asked for
   * whose cell may be well, and only out of this director's reach (P5).
   */
  | { do: 'ask-then-book' }
  | { do: 'database' };

interface Row {
  when: (situation: Situation) => boolean;
  step: Step;
}

const PLAN: readonly Row[] = [
  { when: ({ mode }) => mode !== 'on', step: { do: 'database' } },
  { when: ({ reserveCells }) => !reserveCells, step: { do: 'database' } },
  { when: (it) => it.rowRead === 'not-yet' && !it.facts.known, step: { do: 'read-row', timeoutMs: UNKNOWN_READ_MS } },
  {
    when: (it) => it.rowRead === 'not-yet' && isDoubtful(it) && it.poolWaiters === 0,
    step: { do: 'read-row', timeoutMs: DOUBTFUL_READ_MS },
  },
  {
    when: (it) => it.rowRead === 'failed' && !it.facts.known,
    step: { do: 'retry', reason: 'database', seconds: 2 },
  },
  {
    when: (it) => isStarting(it) && it.last?.status === 'pending',
    step: { do: 'retry', reason: 'map-incomplete', seconds: 1 },
  },
  { when: (it) => isStarting(it) && it.last === null, step: { do: 'database' } },
  { when: isAsItWas, step: { do: 'remember' } },
  { when: isToBeAsked, step: { do: 'rebook' } },
  { when: ({ last }) => last === null || (last.reserve && !last.disrupted), step: { do: 'book' } },
  { when: () => true, step: { do: 'ask-then-book' } },
];

export function nextStep(situation: Situation): Step {
  const row = PLAN.find(({ when }) => when(situation));
  if (row === undefined) throw new Error('the last row of the plan matches always');
  return row.step;
}

function isStarting({ complete, sinceStartMs }: Situation): boolean {
  return !complete && sinceStartMs < GATE_MS;
}

/** Its row says more than this memory, or may: a cell that has yet to tell its seats may hold a newer one. */
function isDoubtful({ facts, complete }: Situation): boolean {
  return facts.outranked || (facts.rejoin !== null && !complete);
}

/** Another process of its cell, or this one may have had its reasons: it says by itself whether it takes the host back. */
function isToBeAsked({ facts: { rejoin }, home }: Situation): boolean {
  return rejoin !== null && home !== null && (rejoin.unsure || rejoin.incarnation !== home.incarnation);
}

/** The process that seated the host would take it back by itself; one that left needs room there. */
function isAsItWas({ facts: { rejoin }, home }: Situation): boolean {
  if (rejoin === null || home === null || rejoin.unsure) return false;
  return rejoin.incarnation === home.incarnation && (rejoin.seated || home.hasRoom);
}
