import { type Clock, every, type Timer } from './clock.ts';

/** How often a process notes that it runs. */
const BEAT_MS = 250;
/** What the time between two beats counts for at most: in the rest of it the process did not run. */
const MAX_GAP_MS = 2 * BEAT_MS;
/** Timers come up to a millisecond early. */
const EARLY_MS = 1;

/** How much of the time since the last beat counts, in milliseconds. */
export function ranMs(sinceBeatMs: number): number {
  return Math.min(sinceBeatMs, MAX_GAP_MS);
}

interface PeerTimer extends Timer {
  cancelled: boolean;
  at: number;
  armed: Timer | undefined;
}

/**
 * Time as a peer is held to it: the time in which this process ran. A process that was stopped, starved or frozen with its
 * machine comes back with every deadline passed and every socket unread, and Node fires timers before it reads. So what a
 * stall takes counts against nobody, and a deadline is judged after one more look at what has arrived.
 *
 * For what peers owe us. What we owe others (renewals, heartbeats, the end of a grace) goes by the clock itself.
 */
export class PeerTime implements Clock {
  readonly #clock: Clock;
  readonly #afterReading: (run: () => void) => void;
  readonly #stopBeating: () => void;
  #ran = 0;
  #beatAt: number;

  /** @param afterReading runs what it is given once the sockets that are readable now were read */
  constructor(clock: Clock, afterReading: (run: () => void) => void = setImmediate) {
    this.#clock = clock;
    this.#afterReading = afterReading;
    this.#beatAt = clock.now();
    this.#stopBeating = every(clock, BEAT_MS, () => {
      this.#ran = this.now();
      this.#beatAt = this.#clock.now();
    });
  }

  now(): number {
    return this.#ran + ranMs(this.#clock.now() - this.#beatAt);
  }

  wallNow(): number {
    return this.#clock.wallNow();
  }

  setTimeout(callback: () => void, delayMs: number): Timer {
    const timer: PeerTimer = { cancelled: false, at: this.now() + delayMs, armed: undefined };
    this.#arm(timer, callback);
    return timer;
  }

  clearTimeout(timer: Timer | undefined): void {
    if (timer === undefined) return;
    const own = timer as PeerTimer;
    own.cancelled = true;
    this.#clock.clearTimeout(own.armed);
  }

  /** Nothing may be timed after it. */
  stop(): void {
    this.#stopBeating();
  }

  #arm(timer: PeerTimer, callback: () => void): void {
    const judge = () => {
      if (timer.cancelled) return;
      if (timer.at - this.now() > EARLY_MS) this.#arm(timer, callback);
      else callback();
    };
    timer.armed = this.#clock.setTimeout(() => this.#afterReading(judge), timer.at - this.now());
  }
}
