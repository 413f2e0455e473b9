import type { Clock, Timer } from '../clock.ts';

export type QueueTurn = { granted: true; release: () => void } | { granted: false };

interface Waiter {
  timer: Timer;
  grant: () => void;
}

/**
 * One turn at a time for each host: activations of the same host follow one another, those of different hosts do not
 * wait. A waiter gives up after its own deadline, and a host has a bounded number of them.
 */
export class HostQueue {
  readonly #clock: Clock;
  readonly #waitMs: number;
  readonly #maxWaiting: number;
  readonly #waiting = new Map<string, Waiter[]>();

  /** @param maxWaiting how many may wait for one host; one more is refused at once */
  constructor(clock: Clock, waitMs: number, maxWaiting: number) {
    this.#clock = clock;
    this.#waitMs = waitMs;
    this.#maxWaiting = maxWaiting;
  }

  /** Hosts with a turn taken. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Whether somebody has this host's turn now. */
  isTaken(key: string): boolean {
    return this.#waiting.has(key);
  }

  turn(key: string): Promise<QueueTurn> {
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) {
      this.#waiting.set(key, []);
      return Promise.resolve({ granted: true, release: this.#releaser(key) });
    }
    if (waiting.length >= this.#maxWaiting) return Promise.resolve({ granted: false });
    return new Promise((resolve) => {
      const waiter: Waiter = {
        timer: this.#clock.setTimeout(() => {
          const at = waiting.indexOf(waiter);
          if (at >= 0) waiting.splice(at, 1);
          resolve({ granted: false });
        }, this.#waitMs),
        grant: () => resolve({ granted: true, release: this.#releaser(key) }),
      };
      waiting.push(waiter);
    });
  }

  #releaser(key: string): () => void {
    let released = false;
    return () => {
      if (released) return;
      released = true;
      const next = this.#waiting.get(key)?.shift();
      if (next === undefined) {
        this.#waiting.delete(key);
        return;
      }
      this.#clock.clearTimeout(next.timer);
      next.grant();
    };
  }
}
