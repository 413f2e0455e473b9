import type { Database } from '../database.ts';
import type { PlacementMemory } from './placement-memory.ts';

const READ_TIMEOUT_MS = 3_000;

export interface EpochBaseParts {
  db: Pick<Database, 'call'>;
  memory: Pick<PlacementMemory, 'baseIs'>;
}

/**
 * Above which a director's own bookings mint since the last failover, which may have lost what rows and memories said of a
 * host (P1). Read with each row, and for the hosts that are known without one at the start and when changes may have been missed.
 */
export class EpochBase {
  readonly #parts: EpochBaseParts;
  #wanted = true;

  constructor(parts: EpochBaseParts) {
    this.#parts = parts;
  }

  /** False while no heartbeat has raised it on this timeline: nobody may mint yet. Throws as the database does. */
  async read(timeoutMs: number): Promise<boolean> {
    const base = await this.#parts.db.call('epoch_base', {}, { timeoutMs });
    if (base !== null) this.#parts.memory.baseIs(base);
    return base !== null;
  }

  /** It may have risen without a word. */
  want(): void {
    this.#wanted = true;
  }

  /** The database answers. Reads it if it is wanted, and leaves it to the next time if it cannot be had. Never rejects. */
  async refresh(): Promise<void> {
    if (!this.#wanted) return;
    this.#wanted = false;
    const known = await this.read(READ_TIMEOUT_MS).catch(() => false);
    if (!known) this.#wanted = true;
  }
}
