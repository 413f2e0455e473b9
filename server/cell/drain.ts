import type { Timer } from '../clock.ts';
import type { DrainOrder, HeartbeatLoad } from '../sql-interface.ts';
import type { CellCore } from './cell-core.ts';
import type { ControlSession } from './control-session.ts';

interface Turn {
  session: ControlSession;
  /** On the clock. */
  at: number;
}

/**
 * Carries out a drain order (03, drains; `wire` 2.9). Every host that is seated when the order comes has a turn, spread
 * evenly over the pace: then it reads `drain`, takes no more phones, and a grace later what it still has here is closed
 * 4503. Until its turn nothing changes for it. Nobody new is let in: the directors send nobody here, and a host that comes
 * all the same reads 4503 and asks them. The heartbeat's `ready` is none of a drain's business.
 */
export class Drain {
  readonly #coreOf: () => CellCore;
  #order: DrainOrder | null = null;
  /** Of the current order, in the order of their turns; those before `#next` have had theirs. */
  #turns: Turn[] = [];
  #next = 0;
  #told = 0;
  #emptied = false;
  #timer: Timer | undefined;

  /** The core holds its drain, so this asks for the core. */
  constructor(core: () => CellCore) {
    this.#coreOf = core;
  }

  /** Whether an order for this process stands: hosts that are not seated here are refused. */
  get ordered(): boolean {
    return this.#order !== null;
  }

  /** Goes with a heartbeat; nothing while no order stands. */
  progress(): Pick<HeartbeatLoad, 'drain_told' | 'drain_left'> {
    if (this.#order === null) return {};
    return { drain_told: this.#told, drain_left: this.#coreOf().seats.size };
  }

  /** What the database says now. The same order again changes nothing, and one for another process is none. */
  follow(read: DrainOrder | null): void {
    const order = read?.incarnation === this.#coreOf().identity.incarnation ? read : null;
    if (order?.ordered_at === this.#order?.ordered_at) return;
    if (order === null) this.#cancel();
    else this.#begin(order);
  }

  /** A host has left its seat. */
  noteLeft(): void {
    const core = this.#coreOf();
    if (this.#order === null || this.#emptied || core.seats.size > 0) return;
    this.#emptied = true;
    this.stop();
    core.metrics.drainOrders.inc({ step: 'emptied' });
    core.log.info({ event: 'orca_relay_cell_drained', told: this.#told });
    core.reportSoon();
  }

  /** Nobody else is told. */
  stop(): void {
    this.#coreOf().clock.clearTimeout(this.#timer);
    this.#turns = [];
    this.#next = 0;
  }

  /** Hosts that were told under an earlier order are not told again, but leave by this one. */
  #begin(order: DrainOrder): void {
    const core = this.#coreOf();
    const replaces = this.#order !== null;
    this.stop();
    this.#order = order;
    this.#told = 0;
    this.#emptied = false;
    const sessions = core.seats.sessions();
    const now = core.clock.now();
    for (const [index, session] of sessions.entries()) {
      const offset = Math.floor((index * order.pace_ms) / sessions.length);
      if (session.postpone('drained', offset + order.grace_ms)) this.#told += 1;
      else this.#turns.push({ session, at: now + offset });
    }
    core.metrics.drainOrders.inc({ step: replaces ? 'replaced' : 'begun' });
    core.log.info({
      event: 'orca_relay_cell_draining',
      hosts: sessions.length,
      alreadyTold: this.#told,
      graceMs: order.grace_ms,
      paceMs: order.pace_ms,
      replaces,
    });
    this.#tellDue();
    this.noteLeft();
  }

  /** Whoever was told goes, and will find that it may come back; the others stay. */
  #cancel(): void {
    const core = this.#coreOf();
    this.stop();
    this.#order = null;
    core.metrics.drainOrders.inc({ step: 'cancelled' });
    core.log.info({ event: 'orca_relay_cell_drain_cancelled', told: this.#told, left: core.seats.size });
    this.#told = 0;
  }

  #tellDue(): void {
    const { clock, metrics } = this.#coreOf();
    const order = this.#order;
    if (order === null) return;
    for (let turn = this.#turns[this.#next]; turn !== undefined; turn = this.#turns[this.#next]) {
      if (turn.at > clock.now()) {
        this.#timer = clock.setTimeout(() => this.#tellDue(), turn.at - clock.now());
        return;
      }
      this.#next += 1;
      if (turn.session.state === 'closed') continue;
      this.#told += 1;
      metrics.drainTold.inc();
      turn.session.drain(order.grace_ms, 'drained');
    }
  }
}
