import type { Clock, Timer } from '../../../client/clock.ts';

interface Entry {
  at: number;
  run: () => void;
}

/** Time that passes only when told to; between two timers everything that was promised gets its turn. */
export class ManualClock implements Clock {
  readonly #entries = new Set<Entry>();
  #now: number;

  constructor(start = 1_700_000_000_000) {
    this.#now = start;
  }

  now(): number {
    return this.#now;
  }

  after(ms: number, run: () => void): Timer {
    const entry = { at: this.#now + Math.max(0, ms), run };
    this.#entries.add(entry);
    return { cancel: () => this.#entries.delete(entry) };
  }

  get armed(): number {
    return this.#entries.size;
  }

  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settle();
    for (let next = this.#next(); next && next.at <= end; next = this.#next()) {
      this.#entries.delete(next);
      this.#now = next.at;
      next.run();
      await settle();
    }
    this.#now = end;
  }

  #next(): Entry | undefined {
    let first: Entry | undefined;
    for (const entry of this.#entries) if (!first || entry.at < first.at) first = entry;
    return first;
  }
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
