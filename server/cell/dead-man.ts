import { createHash } from 'node:crypto';
import type { CellFlags } from '../../contract/cell-flags.ts';
import type { CellCore } from './cell-core.ts';
import type { ClaimAnswer, EffectiveRow } from './effective-row.ts';
import { decideTrip, TRIP_TRANSITIONS, type TripEvent, type TripState } from './trip-states.ts';

const CLAIM_RETRY_MS = 30_000;
/** Either way, so that cells that were refused together do not ask together. */
const CLAIM_RETRY_SPREAD = 0.2;

/** How long a cell waits for a director before it is alone: 60 to 120 s, its own, so that cells do not trip together. */
export function tripWindowMs(cellId: string): number {
  return 60_000 + (createHash('sha256').update(cellId, 'utf8').digest().readUInt32BE(0) % 60_001);
}

/** What became of a claim: a metric label. `late`: won, and given back. */
type ClaimOutcome = Exclude<ClaimAnswer, 'stale_cell_incarnation'> | 'late';

/**
 * Watches over a cell in reserve mode: when no director that books seats has been heard for its window, the cell may have to
 * let hosts in by the database (`trip-states.ts`). Silence is measured in the time in which this process ran, for what a
 * stall of its own keeps from it is nobody's silence.
 */
export class DeadMan {
  readonly #coreOf: () => CellCore;
  readonly #row: EffectiveRow;
  readonly #changed: () => void;
  #state: TripState = 'off';
  #generation = 0;
  #slots: CellFlags['deadManTripSlots'];
  #windowMs = 0;
  #contactAt = 0;
  #claimDueAt = 0;
  /** While it is held this is said once, however often it is refused. */
  #heldSaid = false;
  #stopped = false;

  /** @param changed called after a claim was answered, when the mode and the row may have to follow */
  constructor(core: () => CellCore, row: EffectiveRow, changed: () => void) {
    this.#coreOf = core;
    this.#row = row;
    this.#changed = changed;
  }

  get state(): TripState {
    return this.#state;
  }

  /** Whether no director that books seats was heard for longer than the window. */
  get silent(): boolean {
    return this.silentMs > this.#windowMs;
  }

  get silentMs(): number {
    return this.#coreOf().peerTime.now() - this.#contactAt;
  }

  /** A director that books seats was heard. What follows from it is the watch's business. */
  contact(): void {
    this.#contactAt = this.#coreOf().peerTime.now();
  }

  /** Flags of a new generation. Those that say reserve start a window of their own. */
  follow(generation: number, flags: CellFlags): void {
    this.#generation = generation;
    this.#slots = flags.deadManTripSlots;
    this.#windowMs = tripWindowMs(this.#coreOf().identity.cellId);
    if (flags.admitMode === 'reserve') this.contact();
    this.#fire(flags.admitMode === 'reserve' ? 'armed' : 'disarmed');
  }

  /** Once a second, and nowhere else, it is decided whether the silence means something. */
  watch(): void {
    if (this.#stopped) return;
    const { clock, db, admitted } = this.#coreOf();
    const event = decideTrip({
      state: this.#state,
      silent: this.silent,
      slots: this.#slots,
      canClaim: admitted() && db.waiters() === 0 && !this.#row.writing,
      claimDue: clock.now() >= this.#claimDueAt,
      rowSettled: this.#row.settled,
      unacknowledgedMs: this.#row.ageMs,
    });
    if (event !== null) this.#fire(event);
    if (event === 'claim') void this.#ask(this.#slots ?? 0);
  }

  stop(): void {
    this.#stopped = true;
  }

  async #ask(slots: number): Promise<void> {
    const core = this.#coreOf();
    const spread = 1 + (2 * Math.random() - 1) * CLAIM_RETRY_SPREAD;
    this.#claimDueAt = core.clock.now() + CLAIM_RETRY_MS * spread;
    const answer = await this.#row.claim(slots);
    if (answer === 'stale_cell_incarnation' || this.#stopped) return;
    // A cell that had tripped stays so, whoever is back.
    const wanted = this.silent || this.#state === 'reclaiming';
    const event: TripEvent = answer !== 'granted' ? 'refused' : wanted ? 'granted' : 'late';
    // Flags of a new generation have brought it into a state in which no answer means anything.
    this.#fire(event, answer);
    const outcome: ClaimOutcome = answer === 'granted' && this.#state !== 'tripped' ? 'late' : answer;
    core.metrics.tripClaims.inc({ outcome });
    this.#changed();
  }

  #fire(event: TripEvent, reason: string = event): void {
    const next = TRIP_TRANSITIONS[this.#state][event];
    if (next === null) return;
    const from = this.#state;
    this.#state = next;
    this.#report(from, next, reason);
  }

  #report(from: TripState, to: TripState, reason: string): void {
    const { log, metrics } = this.#coreOf();
    const about = { generation: this.#generation, silentMs: Math.round(this.silentMs) };
    if (to === 'armed' || to === 'off') this.#heldSaid = false;
    if (to === 'tripped' && from !== 'reclaiming') {
      metrics.trips.inc();
      this.#heldSaid = false;
      log.warn({ event: 'orca_relay_cell_reserve_dead_man_tripped', ...about });
    } else if (to === 'held' && !this.#heldSaid) {
      this.#heldSaid = true;
      log.warn({ event: 'orca_relay_cell_reserve_dead_man_held', ...about, reason });
    } else if (to === 'lapsed') {
      log.warn({ event: 'orca_relay_cell_trip_slot_lapsed', ...about });
    }
  }
}
