import type { Clock, Timer } from '../../../server/clock.ts';

interface JumpTimer extends Timer {
  cancelled: boolean;
  at: number;
  order: number;
  callback: () => void;
  handle: NodeJS.Timeout;
}

/**
 * Real time that a test can also jump ahead: sockets and the database go on as ever, and what would fire in the next
 * minute fires now, in order of its deadlines.
 */
export class JumpClock implements Clock {
  #ahead = 0;
  #order = 0;
  #timers = new Set<JumpTimer>();

  now(): number {
    return performance.now() + this.#ahead;
  }

  wallNow(): number {
    return Date.now() + this.#ahead;
  }

  setTimeout(callback: () => void, delayMs: number): Timer {
    const delay = Math.max(0, delayMs);
    this.#order += 1;
    const timer: JumpTimer = {
      cancelled: false,
      at: this.now() + delay,
      order: this.#order,
      callback,
      handle: setTimeout(() => this.#fire(timer), delay),
    };
    this.#timers.add(timer);
    return timer;
  }

  clearTimeout(timer: Timer | undefined): void {
    if (timer === undefined) return;
    const own = timer as JumpTimer;
    own.cancelled = true;
    clearTimeout(own.handle);
    this.#timers.delete(own);
  }

  #fire(timer: JumpTimer): void {
    clearTimeout(timer.handle);
    if (!this.#timers.delete(timer) || timer.cancelled) return;
    timer.callback();
  }

  jump(ms: number): void {
    const end = this.now() + ms;
    for (;;) {
      const due = [...this.#timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at || a.order - b.order)[0];
      if (due === undefined) break;
      this.#ahead += Math.max(0, due.at - this.now());
      this.#fire(due);
    }
    this.#ahead += Math.max(0, end - this.now());
    this.#rearm();
  }

  /** What is left was armed before the jump, and is now due that much sooner. */
  #rearm(): void {
    for (const timer of this.#timers) {
      clearTimeout(timer.handle);
      timer.handle = setTimeout(() => this.#fire(timer), Math.max(0, timer.at - this.now()));
    }
  }
}
