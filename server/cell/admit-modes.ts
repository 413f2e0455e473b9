import { type CellFlags, DEFAULT_CELL_FLAGS, readCellFlags } from '../../contract/cell-flags.ts';
import { every } from '../clock.ts';
import type { AdmitMode, CellOrdersResult } from '../sql-interface.ts';
import type { CellCore } from './cell-core.ts';
import { MODE_TRANSITIONS, type ModeEvent, type ModeState } from './mode-states.ts';

const TICK_MS = 1_000;

type FlagsOrder = Pick<CellOrdersResult, 'flags' | 'flags_generation'>;

/**
 * How this cell admits hosts: by what the operators' flags say, until nobody but the database can be asked. `raw` is what
 * a hello and a booking go by; `effective` is what the cell still is to everybody else (`mode-states.ts`).
 */
export class AdmitModes {
  readonly #coreOf: () => CellCore;
  readonly #left: (() => void)[] = [];
  #flags: CellFlags = DEFAULT_CELL_FLAGS;
  #generation = 0;
  /** Of flags that were read and not taken: said once. */
  #refused = 0;
  #mode: ModeState = 'db';
  #contactAt = 0;
  #stopTicking: (() => void) | undefined;

  /** The core holds its modes, so these ask for the core. */
  constructor(core: () => CellCore) {
    this.#coreOf = core;
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

  /** The listener is called whenever `raw` has gone from reserve to db. */
  onLeft(listener: () => void): void {
    this.#left.push(listener);
  }

  /** A director that books seats here was heard: it polled the feed, or booked. */
  contact(): void {
    this.#contactAt = this.#coreOf().clock.now();
  }

  /** How long no director that books seats here was heard. */
  get silentMs(): number {
    return this.#coreOf().clock.now() - this.#contactAt;
  }

  start(): void {
    this.#stopTicking ??= every(this.#coreOf().clock, TICK_MS, () => this.#settle());
  }

  stop(): void {
    this.#stopTicking?.();
  }

  /** Flags that were read now. Those of a generation that is not newer, and those that are void, change nothing. */
  follow({ flags, flags_generation: generation }: FlagsOrder): void {
    if (generation === this.#generation || generation === this.#refused) return;
    const { log, metrics } = this.#coreOf();
    if (generation < this.#generation) {
      this.#refused = generation;
      metrics.flags.inc({ outcome: 'older' });
      log.warn({ event: 'orca_relay_cell_flags_refused', generation, applied: this.#generation, reason: 'older' });
      return;
    }
    const read = readCellFlags(flags);
    if (!read.ok) {
      this.#refused = generation;
      metrics.flags.inc({ outcome: 'void' });
      log.error({ event: 'orca_relay_cell_flags_refused', generation, reason: 'void', keys: read.bad });
      return;
    }
    this.#flags = read.flags;
    this.#generation = generation;
    metrics.flags.inc({ outcome: 'applied' });
    log.info({ event: 'orca_relay_cell_flags_applied', generation, flags: read.flags, ignoredKeys: read.ignored });
    this.#settle();
  }

  #settle(): void {
    this.#fire(this.#flags.admitMode);
    if (this.#mode === 'leaving' && this.#coreOf().leases.unleased().length === 0) this.#fire('all-leased');
  }

  #fire(event: ModeEvent): void {
    const next = MODE_TRANSITIONS[this.#mode][event];
    if (next === null) return;
    const from = this.#mode;
    this.#mode = next;
    this.#coreOf().log.info({ event: 'orca_relay_cell_admit_mode', from, to: next, generation: this.#generation });
    if (next === 'leaving') for (const listener of this.#left) listener();
  }
}
