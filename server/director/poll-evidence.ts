import type { AssignResult } from '../sql-interface.ts';
import type { Verdict } from './reachability.ts';

/** What this director's polls say of the dead home of a host, as `assign` takes it on its second call (03, dead). */
export interface PollEvidence {
  cell_id: string;
  dead: true;
  /** The instant that the first call was decided, by the database's clock: no two clocks are compared. */
  evaluated_at: number;
  /** For how long its polls have failed. */
  streak_ms: number;
  polled: number;
  failing: number;
  region_polled: number;
  region_failing: number;
}

/** Null for an answer that waits for no verdict, or for one that this director does not give. */
export function evidenceFor(
  { outcome, verdict_wanted, cell_id, decided_at }: AssignResult,
  judge: (cellId: string) => Verdict,
): PollEvidence | null {
  if (outcome !== 'unavailable' || !verdict_wanted || cell_id === null) return null;
  const verdict = judge(cell_id);
  if (verdict.verdict !== 'dead') return null;
  return {
    cell_id,
    dead: true,
    evaluated_at: decided_at,
    streak_ms: Math.round(verdict.streakMs),
    polled: verdict.feedCells,
    failing: verdict.failing,
    region_polled: verdict.regionFeedCells,
    region_failing: verdict.regionFailing,
  };
}
