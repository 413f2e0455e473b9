import type { Clock } from '../clock.ts';
import type { Decision } from './find-place.ts';

/**
 * Hosts whose home has stopped answering this director and cannot be judged yet (03, dead). Each dial of a dead cell would
 * double their pause, and by the time of the verdict many would wait for a minute more. So a host that was sent to such a
 * home, and is back within 30 s, is told to come when the verdict is due, and so is one that is refused for it. The first
 * ask is granted: its home may have been lost by the directors alone (38).
 */

const BACK_MS = 30_000;
const MAX_HOSTS = 4_096;

export interface SilentHomesParts {
  clock: Clock;
  /** Milliseconds until this director's polls of a cell can say that it is dead; null for a cell that answers. */
  judgedInMs: (cellId: string) => number | null;
  /** How long the placement of one host takes, all lanes' places together. */
  slotMs: () => number;
}

export class SilentHomes {
  readonly #parts: SilentHomesParts;
  /** Hosts that were sent to a silent home, and when; the oldest first. */
  readonly #sent = new Map<string, { cellId: string; at: number }>();
  /** When the last of those that wait for a home is to be back. */
  readonly #promisedUntil = new Map<string, number>();

  constructor(parts: SilentHomesParts) {
    this.#parts = parts;
  }

  /** What the host is told instead, or the decision as it is. @param host its name within this process */
  temper(host: string, decision: Decision): Decision {
    const home = homeOf(decision);
    const judgedInMs = home === null ? null : this.#parts.judgedInMs(home);
    if (home === null || judgedInMs === null) return decision;
    if ('granted' in decision && !this.#isBack(host, home)) {
      this.#note(host, home);
      return decision;
    }
    const retryAfterMs = this.#promise(home, judgedInMs);
    return { refusal: { reason: 'home-silent', lane: 'placement', cause: 'unanswered', cellId: home, retryAfterMs } };
  }

  /** One after the other, as fast as they can be placed then. */
  #promise(cellId: string, judgedInMs: number): number {
    const now = this.#parts.clock.now();
    for (const [cell, until] of this.#promisedUntil) if (until < now) this.#promisedUntil.delete(cell);
    const at = Math.max((this.#promisedUntil.get(cellId) ?? 0) + this.#parts.slotMs(), now + judgedInMs);
    this.#promisedUntil.set(cellId, at);
    return at - now;
  }

  #isBack(host: string, cellId: string): boolean {
    const sent = this.#sent.get(host);
    return sent?.cellId === cellId && this.#parts.clock.now() - sent.at <= BACK_MS;
  }

  #note(host: string, cellId: string): void {
    this.#sent.delete(host);
    this.#sent.set(host, { cellId, at: this.#parts.clock.now() });
    if (this.#sent.size <= MAX_HOSTS) return;
    const [oldest] = this.#sent.keys();
    if (oldest !== undefined) this.#sent.delete(oldest);
  }
}

/** The cell where the host was and is to stay, or for which it is to wait. */
function homeOf(decision: Decision): string | null {
  if ('granted' in decision) return decision.granted.from === undefined ? decision.granted.seat.cellId : null;
  const { reason, cellId } = decision.refusal;
  return reason === 'home-unavailable' ? (cellId ?? null) : null;
}
