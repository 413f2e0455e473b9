import { LIMITS } from '../../contract/limits.ts';
import type { Clock, Timer } from '../clock.ts';

/**
 * How long the seats of one cell are kept without a complete read (F1, F2), on the monotonic clock:
 *
 *   shut ── success ──► open ── retention over, or dropped ──► shut
 */

/** Between two reads that both succeed nothing is overdue, however short the retention. */
const BETWEEN_READS_MS = LIMITS.feedPollMs + LIMITS.feedTimeoutMs;

export class SeatArm {
  readonly #clock: Clock;
  readonly #retentionMs: number;
  readonly #onExpired: () => void;
  #open = false;
  #lastSuccess: { at: number; wallAt: number } | null = null;
  #failing = false;
  #timer: Timer | undefined;

  constructor(clock: Clock, retentionMs: number, onExpired: () => void) {
    this.#clock = clock;
    this.#retentionMs = retentionMs;
    this.#onExpired = onExpired;
  }

  get open(): boolean {
    return this.#open;
  }

  /** A read failed after the last one that succeeded. */
  get failing(): boolean {
    return this.#failing;
  }

  /** Null before the first success. */
  get ageMs(): number | null {
    return this.#lastSuccess === null ? null : this.#clock.now() - this.#lastSuccess.at;
  }

  /** Epoch milliseconds, for people: when the last read succeeded. */
  get lastGoodAt(): number | null {
    return this.#lastSuccess?.wallAt ?? null;
  }

  /** @returns false when the arm was open already. */
  succeeded(): boolean {
    const opens = !this.#open;
    this.#open = true;
    this.#failing = false;
    this.#lastSuccess = { at: this.#clock.now(), wallAt: this.#clock.wallNow() };
    // A timer that runs already finds out by itself that it has been put off.
    if (opens) this.#arm();
    return opens;
  }

  failed(): void {
    const first = !this.#failing;
    this.#failing = true;
    if (first && this.#open) this.#arm();
    this.check();
  }

  /** Expires what is overdue, also when a timer is late: whoever reads calls it first. */
  check(): void {
    if (!this.#open || this.#leftMs() > 0) return;
    this.shut();
    this.#onExpired();
  }

  shut(): void {
    this.#open = false;
    this.#clock.clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #arm(): void {
    this.#clock.clearTimeout(this.#timer);
    this.#timer = this.#clock.setTimeout(() => {
      this.check();
      if (this.#open) this.#arm();
    }, this.#leftMs());
  }

  #leftMs(): number {
    const keptMs = this.#failing ? this.#retentionMs : Math.max(this.#retentionMs, BETWEEN_READS_MS);
    return keptMs - (this.ageMs ?? 0);
  }
}
