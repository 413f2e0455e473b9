import type { Timer } from '../clock.ts';
import type { CellOrdersResult } from '../sql-interface.ts';
import { type CellCore, callerOf } from './cell-core.ts';

/** Without a doorbell; spread, so that cells do not ask in step. */
const INTERVAL_MS = 5_000;
const INTERVAL_SPREAD = 0.2;
const READ_TIMEOUT_MS = 3_000;

/**
 * Reads what the operators want of this cell: when a change says that it may be something else, and every 5 s ± 20 %. One
 * read at a time. While there is no answer, and for a cell that is not registered, what was read last stands.
 */
export class CellOrders {
  readonly #coreOf: () => CellCore;
  #timer: Timer | undefined;
  #reading = false;
  /** Something changed while a read was under way, whose answer may be from before. */
  #again = false;
  #failures = 0;
  #stopped = false;

  /** The core holds its orders, so these ask for the core. */
  constructor(core: () => CellCore) {
    this.#coreOf = core;
  }

  /** Reads now; the first call starts the regular reads too. Bounded: what is asked for during a read is one more read. */
  read(): void {
    if (this.#stopped) return;
    if (this.#reading) {
      this.#again = true;
      return;
    }
    this.#reading = true;
    this.#coreOf().clock.clearTimeout(this.#timer);
    void this.#read();
  }

  stop(): void {
    this.#stopped = true;
    this.#coreOf().clock.clearTimeout(this.#timer);
  }

  async #read(): Promise<void> {
    const core = this.#coreOf();
    try {
      const [orders] = await core.db.call('cell_orders', callerOf(core), { timeoutMs: READ_TIMEOUT_MS });
      this.#answered(core, orders);
    } catch (error) {
      core.metrics.orderReads.inc({ outcome: 'failed' });
      this.#failures += 1;
      if (this.#failures === 1) core.log.warn({ event: 'orca_relay_cell_orders_unread', error });
    }
    this.#reading = false;
    if (this.#stopped) return;
    if (this.#again) {
      this.#again = false;
      this.read();
      return;
    }
    const waitMs = INTERVAL_MS * (1 + (2 * Math.random() - 1) * INTERVAL_SPREAD);
    this.#timer = core.clock.setTimeout(() => this.read(), waitMs);
  }

  #answered(core: CellCore, orders: CellOrdersResult | undefined): void {
    if (this.#failures > 0) core.log.info({ event: 'orca_relay_cell_orders_reached', failures: this.#failures });
    this.#failures = 0;
    core.metrics.orderReads.inc({ outcome: orders === undefined ? 'not-registered' : 'read' });
    if (this.#stopped || orders === undefined) return;
    core.drain.follow(orders.drain);
    core.modes.follow(orders);
  }
}
