import type { AssignOutcome, AssignResult } from '../sql-interface.ts';
import type { Desk } from './desk.ts';
import type { LaneName } from './lanes.ts';
import type { Refusal, RefusalReason } from './refusals.ts';

/** What the answers of `assign` mean to whoever asked (03, assign). */

type RefusingOutcome = Exclude<AssignOutcome, 'granted' | 'would_place'>;

export const OUTCOME_REFUSALS: Record<RefusingOutcome, RefusalReason> = {
  busy: 'row-busy',
  unavailable: 'home-unavailable',
  no_capacity: 'no-capacity',
  no_headroom: 'no-headroom',
};

/** Of an answer that is final and no grant. */
export function refusalOf(desk: Desk, result: AssignResult, lane: LaneName): Refusal {
  if (result.outcome === 'granted' || result.outcome === 'would_place') {
    throw new Error(`assign answered ${result.outcome} by ${result.rule} where that is no refusal`);
  }
  const reason = OUTCOME_REFUSALS[result.outcome];
  return {
    reason,
    lane,
    cause: result.cause ?? result.rule,
    ...(reason === 'row-busy' ? { retryAfterMs: desk.rowBusyRetryMs(lane) } : {}),
    ...(result.cell_id === null ? {} : { cellId: result.cell_id }),
  };
}

export interface Seat {
  cellId: string;
  cellUrl: string;
  epoch: number;
}

/** @throws when a grant names no cell: a fault of the SQL interface */
export function seatOf(granted: AssignResult): Seat {
  const { cell_id: cellId, cell_url: cellUrl, epoch } = granted;
  if (cellId === null || cellUrl === null || epoch === null) {
    throw new Error(`assign granted by ${granted.rule} without a cell`);
  }
  return { cellId, cellUrl, epoch };
}

/** Names a host within this process; never logged. */
export function hostKey(userId: string, relayHostId: string): string {
  return `${userId}\0${relayHostId}`;
}
