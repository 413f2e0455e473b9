import { LIMITS } from '../contract/limits.ts';
import type { Clock } from './clock.ts';

/**
 * What strangers may hold before they have said who they are (wire 1.7): so many sockets in all, so many a source, and so
 * many attempts a minute a source. Counted per process, in memory.
 */

const WINDOW_MS = 60_000;

export type PreAuthRefusal = 'total' | 'source' | 'attempts';

export interface PreAuthSlot {
  /** Once, however often it is called. */
  release(): void;
}

interface Source {
  held: number;
  windowStart: number;
  attempts: number;
}

export class PreAuth {
  readonly #clock: Clock;
  readonly #onRefused: (reason: PreAuthRefusal) => void;
  /** The one least recently seen first. */
  readonly #sources = new Map<string, Source>();
  #held = 0;

  constructor(clock: Clock, onRefused: (reason: PreAuthRefusal) => void = () => undefined) {
    this.#clock = clock;
    this.#onRefused = onRefused;
  }

  /** Sockets that hold a slot now. */
  get held(): number {
    return this.#held;
  }

  /** Null when the budget is spent; the attempt counts either way. */
  admit(address: string): PreAuthSlot | null {
    const source = this.#visit(address);
    source.attempts += 1;
    const refusal = this.#refusal(source);
    if (refusal) {
      this.#onRefused(refusal);
      return null;
    }
    source.held += 1;
    this.#held += 1;
    let released = false;
    return {
      release: () => {
        if (released) return;
        released = true;
        source.held -= 1;
        this.#held -= 1;
      },
    };
  }

  #refusal(source: Source): PreAuthRefusal | null {
    if (source.attempts > LIMITS.maxPreAuthAttemptsPerSourcePerMinute) return 'attempts';
    if (source.held >= LIMITS.maxPreAuthPerSource) return 'source';
    return this.#held >= LIMITS.maxPreAuthConnections ? 'total' : null;
  }

  #visit(address: string): Source {
    const now = this.#clock.now();
    const source = this.#sources.get(address) ?? { held: 0, windowStart: now, attempts: 0 };
    if (now - source.windowStart >= WINDOW_MS) {
      source.windowStart = now;
      source.attempts = 0;
    }
    this.#sources.delete(address);
    this.#sources.set(address, source);
    this.#forget();
    return source;
  }

  /** A source that holds a slot is never forgotten: it would get a second budget. */
  #forget(): void {
    if (this.#sources.size <= LIMITS.maxPreAuthSources) return;
    for (const [address, { held }] of this.#sources) {
      if (held > 0) continue;
      this.#sources.delete(address);
      return;
    }
  }
}
