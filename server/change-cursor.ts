import type { ChangeCursor } from './sql-interface.ts';

/**
 * How long a skipped id may still turn up: its transaction may be open. No transaction of ours lives longer than the
 * statement and idle timeouts allow, so a gap of this age is an id that was rolled back.
 */
export const GAP_AGE_MS = 60_000;
/** More gaps than this are not worth carrying: reading everything anew costs less. */
export const MAX_GAPS = 10_000;

/** When each gap was first met, on this process's monotonic clock. */
export type GapAges = ReadonlyMap<number, number>;

export interface AgedCursor {
  cursor: ChangeCursor;
  ages: GapAges;
  /** Gaps given up, too old to be filled. */
  dropped: number;
}

/** Takes the gaps that grew too old out of a cursor. */
export function ageGaps(cursor: ChangeCursor, ages: GapAges, now: number): AgedCursor {
  const met = new Map<number, number>();
  for (const id of cursor.gaps) {
    const since = ages.get(id) ?? now;
    if (now - since < GAP_AGE_MS) met.set(id, since);
  }
  return {
    cursor: { ...cursor, gaps: [...met.keys()] },
    ages: met,
    dropped: cursor.gaps.length - met.size,
  };
}
