import type { RegionsReply } from '../../contract/http.ts';
import type { Clock } from '../clock.ts';
import { type Database, DatabaseError } from '../database.ts';
import type { Reply } from '../http.ts';
import type { Refusals } from './refusals.ts';

/** `GET /v1/regions`: whatever the cells say they are in, with one or two origins to measure the way to. */

const FRESH_MS = 30_000;
const READ_TIMEOUT_MS = 2_000;
const RETRY_MS = 2_000;
const MAX_ORIGINS = 2;

export class Regions {
  readonly #db: Pick<Database, 'call'>;
  readonly #refusals: Refusals;
  readonly #clock: Clock;
  #known: { reply: RegionsReply; at: number } | null = null;
  #reading: Promise<void> | null = null;

  constructor(db: Pick<Database, 'call'>, refusals: Refusals, clock: Clock) {
    this.#db = db;
    this.#refusals = refusals;
    this.#clock = clock;
  }

  /** With the database away, the last answer, however old; a 503 only when there never was one. */
  async answer(): Promise<Reply> {
    try {
      if (!this.#known || this.#clock.now() - this.#known.at >= FRESH_MS) await this.#refresh();
    } catch (error) {
      if (!(error instanceof DatabaseError)) throw error;
      if (!this.#known) {
        return this.#refusals.refuse('regions', { reason: 'database', retryAfterMs: RETRY_MS, cause: error.kind });
      }
    }
    return { status: 200, json: this.#known?.reply };
  }

  #refresh(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #read(): Promise<void> {
    const rows = await this.#db.call('regions', {}, { timeoutMs: READ_TIMEOUT_MS });
    const regions = rows.map(({ region, probe_origins: origins }) => ({
      region,
      probeOrigins: origins.slice(0, MAX_ORIGINS),
    }));
    this.#known = { reply: { v: 1, regions }, at: this.#clock.now() };
  }
}
