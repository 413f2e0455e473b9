import type { Clock } from '../clock.ts';

/** One ask at a time for a host, and none again too soon after a grant. */

export type PacingRefusal = 'host-in-flight' | 'host-rate-limited';

export type PacingEntry =
  | {
      ok: true /** Ends the ask; `paceMs` keeps the host away for that long from its start. */;
      end(paceMs?: number): void;
    }
  | { ok: false; reason: PacingRefusal; retryAfterMs: number };

const MAX_HOSTS = 4_096;
const IN_FLIGHT_RETRY_MS = 1_000;

export class HostPacing {
  readonly #clock: Clock;
  readonly #inFlight = new Set<string>();
  /** In the order of their grants: the oldest is forgotten first. */
  readonly #notBefore = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  begin(host: string): PacingEntry {
    if (this.#inFlight.has(host)) return { ok: false, reason: 'host-in-flight', retryAfterMs: IN_FLIGHT_RETRY_MS };
    const startedAt = this.#clock.now();
    const notBefore = this.#notBefore.get(host) ?? Number.NEGATIVE_INFINITY;
    if (startedAt < notBefore) return { ok: false, reason: 'host-rate-limited', retryAfterMs: notBefore - startedAt };
    this.#inFlight.add(host);
    return {
      ok: true,
      end: (paceMs) => {
        this.#inFlight.delete(host);
        if (paceMs !== undefined) this.#pace(host, startedAt + paceMs);
      },
    };
  }

  #pace(host: string, notBefore: number): void {
    this.#notBefore.delete(host);
    this.#notBefore.set(host, notBefore);
    if (this.#notBefore.size <= MAX_HOSTS) return;
    const oldest = this.#notBefore.keys().next().value;
    if (oldest !== undefined) this.#notBefore.delete(oldest);
  }
}
