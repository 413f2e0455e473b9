/** Runs at most so many tasks at once and keeps a bounded number waiting, in order. */
export class Limiter {
  readonly #concurrency: number;
  readonly #maxWaiting: number;
  readonly #waiting: (() => Promise<void>)[] = [];
  #running = 0;
  #idle: (() => void)[] = [];

  constructor(concurrency: number, maxWaiting: number) {
    this.#concurrency = concurrency;
    this.#maxWaiting = maxWaiting;
  }

  get busy(): boolean {
    return this.#running > 0;
  }

  /** False when the task was refused because too many wait. The task handles its own failures. */
  run(task: () => Promise<void>): boolean {
    if (this.#running >= this.#concurrency) {
      if (this.#waiting.length >= this.#maxWaiting) return false;
      this.#waiting.push(task);
      return true;
    }
    void this.#start(task);
    return true;
  }

  /** Resolves when nothing runs and nothing waits. */
  idle(): Promise<void> {
    if (this.#running === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  async #start(task: () => Promise<void>): Promise<void> {
    this.#running += 1;
    try {
      await task();
    } finally {
      this.#running -= 1;
      const next = this.#waiting.shift();
      if (next !== undefined) void this.#start(next);
      else if (this.#running === 0) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }
}
