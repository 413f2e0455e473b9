import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import { hostKey } from './outcomes.ts';
import type { HostName } from './seat-view.ts';

/** The rows of hosts as this director last saw them in an answer of Postgres: 2 h, and the 100 000 seen last. */

export interface KnownSeat {
  cellId: string;
  epoch: number;
}

export class KnownRows {
  readonly #clock: Clock;
  /** By host, the one seen longest ago first. */
  readonly #rows = new Map<string, KnownSeat & { at: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  clear(): void {
    this.#rows.clear();
  }

  /** Answers may arrive out of order: a row's epoch never falls (P1). */
  note({ userId, relayHostId }: HostName, { cellId, epoch }: KnownSeat): void {
    const key = hostKey(userId, relayHostId);
    const known = this.#rows.get(key);
    if (known !== undefined && known.epoch > epoch) return;
    this.#rows.delete(key);
    this.#rows.set(key, { cellId, epoch, at: this.#clock.now() });
    if (this.#rows.size <= LIMITS.rememberedHosts) return;
    const [oldest] = this.#rows.keys();
    if (oldest !== undefined) this.#rows.delete(oldest);
  }

  of({ userId, relayHostId }: HostName): KnownSeat | null {
    const row = this.#rows.get(hostKey(userId, relayHostId));
    return row === undefined || this.#clock.now() - row.at >= LIMITS.rowFloorMs ? null : row;
  }
}
