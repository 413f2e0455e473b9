import type { Clock } from '../clock.ts';

/** When hosts that find no intake are to come back: one after the other, at the rate at which their cells take hosts in. */

const MIN_MS = 1_000;
const MAX_MS = 10_000;

export class Pace {
  readonly #clock: Clock;
  readonly #promisedUntil = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * @param region whose cells are waited for
   * @param perSecond how many hosts they take from this director
   * @returns milliseconds, 1 to 10 s
   */
  promise(region: string, perSecond: number): number {
    const now = this.#clock.now();
    const slot = perSecond > 0 ? 1_000 / perSecond : MAX_MS;
    const at = Math.min(Math.max((this.#promisedUntil.get(region) ?? 0) + slot, now + MIN_MS), now + MAX_MS);
    this.#promisedUntil.set(region, at);
    return at - now;
  }
}
