import { type Clock, every } from '../clock.ts';
import type { Database } from '../database.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';

/**
 * How full Postgres' queue of notifications is (incident 10). It keeps what was rung until the slowest session that listens has
 * taken it, and once it is full every transaction that rings fails. Nothing here goes by it: an operator must see it come.
 */

const LOOK_MS = 10_000;
const TIMEOUT_MS = 2_000;

export class NotificationQueue {
  readonly #db: Pick<Database, 'query'>;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #usage;
  #looking: Promise<void> | null = null;
  #failing = false;
  #end: (() => void) | null = null;

  constructor(db: Pick<Database, 'query'>, log: Logger, metrics: Metrics, clock: Clock) {
    this.#db = db;
    this.#log = log;
    this.#clock = clock;
    this.#usage = metrics.gauge(
      'orca_relay_notification_queue_usage',
      'Share of the notification queue of Postgres that is in use, 0 to 1; NaN while it cannot be read',
    );
    this.#usage.set(Number.NaN);
  }

  start(): void {
    this.#look();
    this.#end = every(this.#clock, LOOK_MS, () => this.#look());
  }

  /** Resolves when no look is under way any more. */
  async stop(): Promise<void> {
    this.#end?.();
    await this.#looking;
  }

  /** One at a time: a look that takes longer than the interval is not overtaken. */
  #look(): void {
    this.#looking ??= this.#read().finally(() => {
      this.#looking = null;
    });
  }

  async #read(): Promise<void> {
    const text = 'select pg_notification_queue_usage() as usage';
    try {
      const [row] = await this.#db.query<{ usage: number }>(text, [], { timeoutMs: TIMEOUT_MS });
      this.#usage.set(row?.usage ?? Number.NaN);
      this.#failing = false;
    } catch (error) {
      this.#usage.set(Number.NaN);
      if (!this.#failing) this.#log.warn({ event: 'orca_relay_notification_queue_unread', error });
      this.#failing = true;
    }
  }
}
