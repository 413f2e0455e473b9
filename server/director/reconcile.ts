import type { Clock, Timer } from '../clock.ts';
import type { CellRow } from '../sql-interface.ts';
import { isReserve, planCells } from './candidates.ts';
import type { Ledger } from './ledger.ts';
import { GATE_MS } from './reserve-plan.ts';
import type { SeatView } from './seat-view.ts';

/**
 * Offers the ledger every seat on a reserve cell, so that none is missed for good: one whose director died before it wrote, or
 * that a full snapshot told without saying who booked it (reserve-mode 1.5). Once the map is complete, or some cell has kept it
 * waiting for too long, from then on every 10 min and a little more, and of one cell when it leaves reserve mode.
 */

const EVERY_MS = 600_000;
const JITTER_MS = 60_000;
/** A younger one is on its way to the row by the director that booked it. */
const MIN_AGE_MS = 30_000;
/** At boot: seats that were too young the first time, also those in which a new socket made them young again. */
const SECOND_MS = 60_000;
const LOOK_MS = 1_000;

export interface ReconcileParts {
  clock: Clock;
  fleet: { readonly cells: readonly CellRow[] };
  ledger: Pick<Ledger, 'add'>;
  random: () => number;
  seats: SeatView;
}

export class Reconcile {
  readonly #parts: ReconcileParts;
  /** Cells that last said reserve. */
  readonly #inReserve = new Set<string>();
  #startedAt = 0;
  #timer: Timer | undefined;
  #rounds = 0;

  constructor(parts: ReconcileParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#startedAt = this.#parts.clock.now();
    this.#arm(0);
  }

  stop(): void {
    this.#parts.clock.clearTimeout(this.#timer);
  }

  /** What happened on this cell was not told one by one. Before the first round there is nothing to be missed. */
  gap(cellId: string): void {
    if (this.#rounds > 0 && this.#reserveCells().includes(cellId)) this.#offer(cellId, 0);
  }

  /** A page of its feed was taken in: a cell that leaves reserve mode can lease no host without its row (reserve-mode 1.7). */
  read(cellId: string): void {
    const inReserve = this.#parts.seats.cell(cellId)?.mode === 'reserve';
    if (inReserve) this.#inReserve.add(cellId);
    else if (this.#inReserve.delete(cellId)) this.#offer(cellId, 0);
  }

  #look(): void {
    const { clock, seats } = this.#parts;
    if (this.#rounds === 0 && !seats.complete() && clock.now() - this.#startedAt < GATE_MS) {
      this.#arm(LOOK_MS);
      return;
    }
    const minAgeMs = this.#rounds === 1 ? 0 : MIN_AGE_MS;
    for (const cellId of this.#reserveCells()) this.#offer(cellId, minAgeMs);
    this.#rounds += 1;
    this.#arm(this.#rounds === 1 ? SECOND_MS : EVERY_MS + this.#parts.random() * JITTER_MS);
  }

  #arm(delayMs: number): void {
    this.#timer = this.#parts.clock.setTimeout(() => this.#look(), delayMs);
  }

  #offer(cellId: string, minAgeMs: number): void {
    const { clock, ledger, seats } = this.#parts;
    const joinedBefore = clock.wallNow() - minAgeMs;
    for (const { host, seat } of seats.seatsOn(cellId)) {
      if (seat.joinedAt <= joinedBefore) ledger.add(host, seat, { urgent: false });
    }
  }

  #reserveCells(): string[] {
    const { fleet, seats } = this.#parts;
    return planCells(fleet.cells, seats)
      .filter(isReserve)
      .map(({ row }) => row.cell_id);
  }
}
