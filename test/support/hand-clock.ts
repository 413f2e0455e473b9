import type { Clock, Timer } from '../../server/clock.ts';

interface HandTimer extends Timer {
  cancelled: boolean;
  at: number;
  order: number;
  callback: () => void;
}

/** A clock that stands still until a test turns it; timers fire in the order of their deadlines. */
export class HandClock implements Clock {
  #now = 0;
  #wallStart: number;
  #order = 0;
  #timers = new Set<HandTimer>();

  constructor(wallStart = Date.now()) {
    this.#wallStart = wallStart;
  }

  now(): number {
    return this.#now;
  }

  wallNow(): number {
    return this.#wallStart + this.#now;
  }

  setTimeout(callback: () => void, delayMs: number): Timer {
    this.#order += 1;
    const timer: HandTimer = {
      cancelled: false,
      at: this.#now + Math.max(0, delayMs),
      order: this.#order,
      callback,
    };
    this.#timers.add(timer);
    return timer;
  }

  clearTimeout(timer: Timer | undefined): void {
    if (timer === undefined) return;
    (timer as HandTimer).cancelled = true;
    this.#timers.delete(timer as HandTimer);
  }

  /** How many timers are armed: a leak shows here. */
  get armed(): number {
    return this.#timers.size;
  }

  /** The process was stopped for so long: whatever fell due meanwhile fires now, late. */
  sleep(ms: number): void {
    this.#now += ms;
    this.advance(0);
  }

  /** Turns the clock forward, firing everything that falls due on the way. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const due = [...this.#timers]
        .filter((timer) => timer.at <= end)
        .sort((a, b) => a.at - b.at || a.order - b.order)[0];
      if (due === undefined) break;
      this.#timers.delete(due);
      this.#now = Math.max(this.#now, due.at);
      due.callback();
    }
    this.#now = end;
  }
}
