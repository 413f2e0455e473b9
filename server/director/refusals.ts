import type { HttpError } from '../../contract/http.ts';
import type { Clock, Timer } from '../clock.ts';
import type { Reply } from '../http.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { PacingRefusal } from './host-pacing.ts';
import type { LaneName, LaneRefusal } from './lanes.ts';

/** Every way a director says no, in one table: the answer on the wire (wire 1.2), and what may follow it. */

export type RefusalReason =
  | LaneRefusal
  | PacingRefusal
  | 'invalid-token'
  | 'invalid-request'
  | 'identity-mismatch'
  | 'invalid-credential'
  | 'no-assignment'
  | 'not-configured'
  | 'keys-unavailable'
  | 'disabled'
  | 'database'
  | 'row-busy'
  | 'home-unavailable'
  | 'home-silent'
  | 'no-capacity'
  | 'no-headroom'
  | 'reserve-map-incomplete'
  | 'reserve-database'
  | 'reserve-paced'
  | 'owner-unknown'
  | 'store-unavailable';

export type Route = 'assign' | 'resolve' | 'invite' | 'host-token' | 'regions';

interface Answer {
  status: number;
  error: HttpError;
  /** `lane`: what the lane promises. Seconds else; a 503 without one lets the client's own back-off decide. */
  retryAfter: 'lane' | null;
  /** Said in the body, where the wire has room for it. */
  cause?: string;
}

const later: Answer = { status: 503, error: 'assignments_temporarily_unavailable', retryAfter: 'lane' };

export const REFUSALS: Record<RefusalReason, Answer> = {
  'invalid-token': { status: 401, error: 'invalid_token', retryAfter: null },
  'invalid-request': { status: 400, error: 'invalid_request', retryAfter: null },
  'identity-mismatch': { status: 403, error: 'host_identity_mismatch', retryAfter: null },
  'invalid-credential': { status: 401, error: 'invalid_credential', retryAfter: null },
  'no-assignment': { status: 409, error: 'assignment_not_found', retryAfter: null },
  'not-configured': { status: 404, error: 'not_found', retryAfter: null },
  'keys-unavailable': later,
  disabled: later,
  database: later,
  'queue-full': later,
  'wait-timeout': later,
  superseded: later,
  abandoned: later,
  stopping: later,
  'host-in-flight': later,
  'host-rate-limited': later,
  'reserve-map-incomplete': later,
  'reserve-database': later,
  'reserve-paced': later,
  'row-busy': { status: 503, error: 'assignment_row_busy', retryAfter: 'lane' },
  'home-unavailable': { status: 503, error: 'relay_home_cell_unavailable', retryAfter: null },
  'home-silent': { status: 503, error: 'relay_home_cell_unavailable', retryAfter: 'lane' },
  'no-capacity': { status: 503, error: 'relay_capacity_exhausted', retryAfter: null },
  'no-headroom': { status: 503, error: 'relay_connection_headroom_exhausted', retryAfter: null },
  'owner-unknown': { status: 503, error: 'owner_unknown', retryAfter: 'lane' },
  'store-unavailable': { status: 503, error: 'owner_unknown', retryAfter: 'lane', cause: 'store_unavailable' },
};

export interface Refusal {
  reason: RefusalReason;
  lane?: LaneName;
  retryAfterMs?: number;
  /** Of `unavailable`; or what failed. */
  cause?: string;
  cellId?: string;
}

/** A reason is logged at once, and then for this long only counted. */
const WINDOW_MS = 10_000;

interface Window {
  suppressed: number;
  timer: Timer;
  close(): void;
}

export class Refusals {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #total;
  readonly #windows = new Map<string, Window>();

  constructor(log: Logger, metrics: Metrics, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
    this.#total = metrics.counter('orca_relay_director_refused_total', 'Requests a director refused', [
      'route',
      'lane',
      'reason',
    ]);
  }

  /** @param host digest */
  refuse(route: Route, refusal: Refusal, host?: string): Reply {
    const answer = REFUSALS[refusal.reason];
    const seconds = answer.retryAfter === 'lane' ? wholeSeconds(refusal.retryAfterMs ?? 0) : null;
    this.note(route, refusal, host, seconds);
    return {
      status: answer.status,
      json: bodyOf(answer, seconds),
      ...(seconds === null ? {} : { headers: { 'retry-after': String(seconds) } }),
    };
  }

  note(route: Route, refusal: Refusal, host?: string, retryAfter: number | null = null): void {
    const lane = refusal.lane ?? 'none';
    const { reason } = refusal;
    this.#total.inc({ route, lane, reason });
    const key = `${route}:${lane}:${reason}`;
    const window = this.#windows.get(key);
    if (window) {
      window.suppressed += 1;
      return;
    }
    this.#open(key, { route, lane, reason });
    this.#log.warn({
      event: 'orca_relay_assignment_rejected',
      route,
      lane,
      reason,
      ...(host === undefined ? {} : { host }),
      ...(retryAfter === null ? {} : { retryAfter }),
      ...(refusal.cause === undefined ? {} : { cause: refusal.cause }),
      ...(refusal.cellId === undefined ? {} : { cell: refusal.cellId }),
    });
  }

  /** Says what is still only counted. */
  stop(): void {
    for (const window of this.#windows.values()) {
      this.#clock.clearTimeout(window.timer);
      window.close();
    }
  }

  #open(key: string, what: { route: Route; lane: string; reason: RefusalReason }): void {
    const close = () => {
      this.#windows.delete(key);
      const { suppressed } = window;
      if (suppressed > 0) this.#log.warn({ event: 'orca_relay_assignment_rejected', ...what, suppressed });
    };
    const window: Window = { suppressed: 0, timer: this.#clock.setTimeout(close, WINDOW_MS), close };
    this.#windows.set(key, window);
  }
}

/** `error` alone, but for an unknown owner, whose reader is told when to ask again and whether Postgres was asked (F7). */
function bodyOf({ error, cause }: Answer, retryAfterSeconds: number | null): object {
  if (error !== 'owner_unknown') return { error };
  const retryAfterMs = (retryAfterSeconds ?? 1) * 1_000;
  return { error, retryAfterMs, ...(cause === undefined ? {} : { cause }) };
}

/** At least one; a sum of monotonic times that is a hair over a whole second is that second. */
function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(Math.round(ms) / 1_000));
}
