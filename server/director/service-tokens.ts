import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import { cellAudience, signServiceToken } from '../service-token.ts';

/** One token a cell, signed anew every 10 min. */
export class ServiceTokens {
  readonly #signingKey: string;
  readonly #directorId: string;
  readonly #clock: Clock;
  readonly #tokens = new Map<string, { token: Promise<string>; until: number }>();

  constructor(signingKey: string, directorId: string, clock: Clock) {
    this.#signingKey = signingKey;
    this.#directorId = directorId;
    this.#clock = clock;
  }

  for(cellId: string): Promise<string> {
    const kept = this.#tokens.get(cellId);
    if (kept !== undefined && this.#clock.now() < kept.until) return kept.token;
    const identity = { caller: this.#directorId, role: 'director', audience: cellAudience(cellId) } as const;
    const token = signServiceToken(this.#signingKey, identity, this.#clock);
    this.#tokens.set(cellId, { token, until: this.#clock.now() + LIMITS.serviceTokenReuseMs });
    token.catch(() => this.forget(cellId));
    return token;
  }

  /** The cell refused it: a machine that slept comes back with one that has expired. */
  forget(cellId: string): void {
    this.#tokens.delete(cellId);
  }
}
