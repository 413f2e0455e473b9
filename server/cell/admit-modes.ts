import { type CellFlags, DEFAULT_CELL_FLAGS, readCellFlags } from '../../contract/cell-flags.ts';
import { every } from '../clock.ts';
import type { AdmitMode, CellOrdersResult } from '../sql-interface.ts';
import type { CellCore } from './cell-core.ts';
import { DeadMan } from './dead-man.ts';
import { EffectiveRow, type RowWish } from './effective-row.ts';
import { MODE_TRANSITIONS, type ModeEvent, type ModeState } from './mode-states.ts';
import { Reregistration, reregisterInFlight } from './reregistration.ts';

const TICK_MS = 1_000;

type FlagsOrder = Pick<CellOrdersResult, 'flags' | 'flags_generation'>;

/**
 * How this cell admits hosts: by what the operators' flags say, until nobody but the database can be asked. `raw` is what
 * a hello and a booking go by; `effective` is what the cell still is to everybody else (`mode-states.ts`).
 */
export class AdmitModes {
  readonly #coreOf: () => CellCore;
  #flags: CellFlags = DEFAULT_CELL_FLAGS;
  #generation = 0;
  /** Flags that were read and not taken: said once. */
  #refused = '';
  /** As they were read, those that apply. */
  #applied = '';
  #mode: ModeState = 'db';
  #stopped = false;
  /** It said reserve once, so it is to say db at the end. */
  #saidReserve = false;
  /** In any mode, whether a trip is armed or not. */
  #heardAt: number | null = null;
  #stopTicking: (() => void) | undefined;
  readonly row: EffectiveRow;
  readonly trip: DeadMan;
  readonly reregistration: Reregistration;

  /** The core holds its modes, so these ask for the core. */
  constructor(core: () => CellCore) {
    this.#coreOf = core;
    this.row = new EffectiveRow(core);
    this.trip = new DeadMan(core, this.row, () => this.#settle());
    this.reregistration = new Reregistration(core, {
      wanted: () => this.raw === 'db',
      inFlight: () => reregisterInFlight(core().db.poolMax, this.#flags.reregisterInFlight),
      directorsSilent: () => this.trip.silent,
    });
  }

  get raw(): AdmitMode {
    return this.#mode === 'reserve' ? 'reserve' : 'db';
  }

  get effective(): AdmitMode {
    return this.#mode === 'db' ? 'db' : 'reserve';
  }

  get flags(): CellFlags {
    return this.#flags;
  }

  /** Of the flags that apply; 0 for those of a cell that nobody has said anything to. */
  get generation(): number {
    return this.#generation;
  }

  /** A director that books seats here was heard: it polled the feed, or booked. */
  contact(): void {
    this.trip.contact();
    // whoever wants the cell in reserve mode is warned until this is known
    if (this.#heardAt === null) this.#coreOf().reportSoon();
    this.#heardAt = this.#coreOf().peerTime.now();
  }

  /** Since then, in whole milliseconds; undefined before the first time. Goes with a heartbeat. */
  get directorContactMs(): number | undefined {
    return this.#heardAt === null ? undefined : Math.round(this.#coreOf().peerTime.now() - this.#heardAt);
  }

  start(): void {
    this.#stopTicking ??= every(this.#coreOf().clock, TICK_MS, () => {
      this.trip.watch();
      this.#settle();
    });
  }

  /** The process leaves: nothing is written, claimed or registered any more. */
  stop(): void {
    this.#stopped = true;
    this.#stopTicking?.();
    this.trip.stop();
    this.reregistration.stop();
  }

  /**
   * Flags that were read now. Those of a generation that is not newer, and those that are void, change nothing. A generation
   * comes twice with other flags after a failover that lost the first, and a late read may still show that: the one that was
   * taken stands, and whoever wrote the other hears so, and writes the next.
   */
  follow({ flags, flags_generation: generation }: FlagsOrder): void {
    const text = `${generation} ${JSON.stringify(flags)}`;
    if (text === this.#applied || text === this.#refused) return;
    const { log, metrics } = this.#coreOf();
    const event = 'orca_relay_cell_flags_refused';
    if (generation <= this.#generation) {
      const reason = generation < this.#generation ? 'older' : 'repeated';
      this.#refused = text;
      // a cell that nobody has said anything to has none of its own to keep
      if (this.#generation === 0) return;
      metrics.flags.inc({ outcome: reason });
      log.warn({ event, generation, applied: this.#generation, reason });
      return;
    }
    const read = readCellFlags(flags);
    if (!read.ok) {
      this.#refused = text;
      metrics.flags.inc({ outcome: 'void' });
      log.error({ event, generation, reason: 'void', keys: read.bad });
      return;
    }
    this.#applied = text;
    this.#flags = read.flags;
    this.#saidReserve ||= read.flags.admitMode === 'reserve';
    this.#generation = generation;
    this.trip.follow(generation, read.flags);
    metrics.flags.inc({ outcome: 'applied' });
    log.info({ event: 'orca_relay_cell_flags_applied', generation, flags: read.flags, ignoredKeys: read.ignored });
    this.#settle();
  }

  /** Brings the mode, the leases and the row to what flags and trip say. */
  #settle(): void {
    if (this.#stopped) return;
    const { leases, admitted } = this.#coreOf();
    this.#fire(this.trip.state === 'tripped' ? 'db' : this.#flags.admitMode);
    if (this.#mode === 'leaving' && leases.unleased().length === 0) this.#fire('all-leased');
    this.reregistration.check();
    // Before it is heard, the row and the question are another process's.
    if (admitted()) this.row.follow(this.#wish());
  }

  #wish(): RowWish | null {
    const { state } = this.trip;
    // It speaks again when it has asked for its slot anew.
    if (state === 'lapsed' || state === 'reclaiming') return null;
    const tripped = state === 'tripped';
    if (!this.#saidReserve) return null;
    const unleased = this.#mode === 'reserve' ? null : this.#coreOf().leases.unleased().length;
    if (this.#flags.admitMode === 'reserve') {
      return { mode: tripped ? 'db' : 'reserve', unleased, refreshed: true, tripped };
    }
    // How far it has come, and at last that it is over.
    return { mode: this.effective, unleased, refreshed: false, tripped };
  }

  #fire(event: ModeEvent): void {
    const next = MODE_TRANSITIONS[this.#mode][event];
    if (next === null) return;
    const from = this.#mode;
    this.#mode = next;
    const { book, log } = this.#coreOf();
    // What was promised is promised no more: the database places here from now on.
    const voided = next === 'leaving' ? book.void() : 0;
    log.info({ event: 'orca_relay_cell_admit_mode', from, to: next, generation: this.#generation, voided });
  }
}
