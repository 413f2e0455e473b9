import type { ActivateControlResult, RenewedLease } from '../sql-interface.ts';
import type { EndCause } from './control-states.ts';

/** What became of one lease in a renewal; the last two never reached an answer of the database's. */
export type RenewalOutcome = RenewedLease['outcome'] | 'missing' | 'database_error';

export type RenewalReaction =
  /** Next renewal after the interval. */
  | { do: 'carry-on' }
  /** Keep the socket, try again at the next tick. */
  | { do: 'retry' }
  /** No new phones; the control ends when the time named by the database is over. */
  | { do: 'retire' }
  /** The lease is gone though the control lives: take it once more. */
  | { do: 'reacquire' }
  /** Another process of this cell has taken over. */
  | { do: 'stand-down' };

/** `wire` 2.7. A failing database closes nobody. */
export const RENEWAL_REACTIONS: Record<RenewalOutcome, RenewalReaction> = {
  renewed: { do: 'carry-on' },
  retiring: { do: 'retire' },
  control_activity_not_found: { do: 'reacquire' },
  lease_lock_unavailable: { do: 'retry' },
  stale_cell_incarnation: { do: 'stand-down' },
  missing: { do: 'retry' },
  database_error: { do: 'retry' },
};

export type ReacquireReaction =
  | { do: 'recovered' }
  | { do: 'retry' }
  | { do: 'stand-down' }
  | { do: 'end'; cause: EndCause };

/** What the one attempt to take a lost lease again leads to. */
export const REACQUIRE_REACTIONS: Record<ActivateControlResult['outcome'] | 'database_error', ReacquireReaction> = {
  active: { do: 'recovered' },
  wrong_epoch: { do: 'end', cause: 'activity-moved' },
  wrong_cell: { do: 'end', cause: 'activity-moved' },
  no_assignment: { do: 'end', cause: 'assignment-missing' },
  stale_cell_incarnation: { do: 'stand-down' },
  busy: { do: 'retry' },
  database_error: { do: 'retry' },
};
