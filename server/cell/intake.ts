import { LIMITS } from '../../contract/index.ts';
import type { Clock } from '../clock.ts';

/** How many hosts that are new to it a cell takes on: a burst at once, and from then on so many a second. */
export class Intake {
  readonly #clock: Clock;
  readonly #perSec: () => number;
  #tokens: number = LIMITS.intakeBurst;
  #settledAt: number;

  /** @param perSec as it is now; the operators may change it */
  constructor(clock: Clock, perSec: () => number) {
    this.#clock = clock;
    this.#perSec = perSec;
    this.#settledAt = clock.now();
  }

  get perSec(): number {
    return this.#perSec();
  }

  get tokens(): number {
    const now = this.#clock.now();
    const earned = ((now - this.#settledAt) / 1_000) * this.perSec;
    this.#tokens = Math.min(LIMITS.intakeBurst, this.#tokens + earned);
    this.#settledAt = now;
    return this.#tokens;
  }

  /** Only if there is a whole one. */
  take(): void {
    this.#tokens = this.tokens - 1;
  }
}
