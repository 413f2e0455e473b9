import type { Clock, Timer } from '../../server/clock.ts';

interface VirtualTimer extends Timer {
  cancelled: boolean;
  at: number;
  order: number;
  callback: () => void;
}

/**
 * The clock of a simulation: time passes only from one timer to the next, and only when nothing that really takes time (a
 * call of Postgres) is under way. Timers of one instant fire in the order in which they were set.
 */
export class VirtualTime implements Clock {
  readonly #wallStart: number;
  readonly #heap: VirtualTimer[] = [];
  #now = 0;
  #order = 0;
  #real = 0;
  #wake: (() => void) | null = null;

  constructor(wallStart: number) {
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
    const timer = { cancelled: false, at: this.#now + Math.max(0, delayMs), order: this.#order, callback };
    this.#push(timer);
    return timer;
  }

  clearTimeout(timer: Timer | undefined): void {
    if (timer !== undefined) (timer as VirtualTimer).cancelled = true;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.setTimeout(resolve, ms));
  }

  /** Time stands while this is under way. */
  async reallyTakes<T>(work: () => Promise<T>): Promise<T> {
    this.#real += 1;
    try {
      return await work();
    } finally {
      this.#real -= 1;
      if (this.#real === 0) this.#wake?.();
    }
  }

  /** Lets time pass. */
  async run(ms: number): Promise<void> {
    const end = this.#now + ms;
    await this.#settle();
    for (;;) {
      const next = this.#heap[0];
      if (next === undefined || next.at > end) break;
      this.#pop();
      if (next.cancelled) continue;
      this.#now = Math.max(this.#now, next.at);
      next.callback();
      if (this.#heap[0]?.at !== next.at) await this.#settle();
    }
    this.#now = end;
  }

  /** What follows from what has happened happens now: promises first, then what waits for Postgres, and so on. */
  async #settle(): Promise<void> {
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#real === 0) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = null;
    }
  }

  #push(timer: VirtualTimer): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(timer);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(timer, heap[parent] as VirtualTimer)) break;
      heap[at] = heap[parent] as VirtualTimer;
      at = parent;
    }
    heap[at] = timer;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as VirtualTimer;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      const right = child + 1;
      if (right < heap.length && isBefore(heap[right] as VirtualTimer, heap[child] as VirtualTimer)) child = right;
      if (!isBefore(heap[child] as VirtualTimer, last)) break;
      heap[at] = heap[child] as VirtualTimer;
      at = child;
    }
    heap[at] = last;
  }
}

function isBefore(a: VirtualTimer, b: VirtualTimer): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
