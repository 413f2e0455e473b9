/**
 * How one refresh of a cell's seats can end, and what each end means twice over: whether the cell lives (03, the director's
 * verdict) and what becomes of the seats held for it (F1, F3).
 */

export const FEED_FAILURES = [
  /** Not connected, or the connection broke: refused, reset, no such name. */
  'unreachable',
  'timeout',
  /** 502, 503, 504: whoever stands before the cell speaks, not the cell. */
  'gateway',
  'server_error',
  /** 401, 403: our own credential. */
  'unauthorized',
  /** 404: a cell from before there was a feed. */
  'no_feed',
  /** Any other status. */
  'refused',
  'malformed',
  'too_large',
  /** Another cell answers at this address. */
  'cell_id_mismatch',
  /** Changes that do not follow on what is held. */
  'cursor_gap',
  /** The cell has more changes than one refresh reads: everything at once is shorter. */
  'too_far_behind',
  /** No service token could be made, so nobody was asked. */
  'unminted',
] as const;

export type FeedFailure = (typeof FEED_FAILURES)[number];

/** `neither`: nothing was learnt about the cell. */
export type Liveness = 'answered' | 'unanswered' | 'neither';

interface Meaning {
  liveness: Liveness;
  /** `keep`: until the retention has passed since the last success. */
  seats: 'keep' | 'drop';
  /** Whether the next refresh asks for everything. */
  cursor: 'keep' | 'drop';
}

export const MEANING: Record<FeedFailure, Meaning> = {
  unreachable: { liveness: 'unanswered', seats: 'keep', cursor: 'keep' },
  timeout: { liveness: 'unanswered', seats: 'keep', cursor: 'keep' },
  gateway: { liveness: 'unanswered', seats: 'keep', cursor: 'keep' },
  server_error: { liveness: 'answered', seats: 'keep', cursor: 'keep' },
  unauthorized: { liveness: 'answered', seats: 'drop', cursor: 'drop' },
  no_feed: { liveness: 'answered', seats: 'drop', cursor: 'drop' },
  refused: { liveness: 'answered', seats: 'keep', cursor: 'drop' },
  malformed: { liveness: 'answered', seats: 'keep', cursor: 'drop' },
  too_large: { liveness: 'answered', seats: 'keep', cursor: 'drop' },
  cell_id_mismatch: { liveness: 'answered', seats: 'keep', cursor: 'drop' },
  cursor_gap: { liveness: 'answered', seats: 'keep', cursor: 'drop' },
  too_far_behind: { liveness: 'answered', seats: 'keep', cursor: 'drop' },
  unminted: { liveness: 'neither', seats: 'keep', cursor: 'keep' },
};

const GATEWAY_STATUSES: ReadonlySet<number> = new Set([502, 503, 504]);

/** What a status other than 200 says. */
export function failureOfStatus(status: number): FeedFailure {
  if (status === 401 || status === 403) return 'unauthorized';
  if (status === 404) return 'no_feed';
  if (GATEWAY_STATUSES.has(status)) return 'gateway';
  return status >= 500 ? 'server_error' : 'refused';
}
