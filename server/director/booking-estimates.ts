import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import type { CellView, SeatView } from './seat-view.ts';

/**
 * What a director reckons of a cell between two polls: the units that its own bookings took, and how many new hosts it may
 * still send there. Several directors share the intake of a cell without asking each other.
 */

/** How many directors are taken to share a cell's intake. */
const DIRECTORS = 5;
const BURST = 4;

interface Estimate {
  tokens: number;
  tokensAt: number;
  /** When the poll was answered that `booked` counts from. */
  polledAt: number;
  booked: number;
  full: boolean;
}

export class BookingEstimates {
  readonly #clock: Clock;
  readonly #seats: Pick<SeatView, 'cell'>;
  readonly #startedAt: number;
  readonly #cells = new Map<string, Estimate>();

  constructor(clock: Clock, seats: Pick<SeatView, 'cell'>) {
    this.#clock = clock;
    this.#seats = seats;
    this.#startedAt = clock.now();
  }

  /** Units not taken, by the last poll and our bookings since; 0 for a cell that hides its ceiling or said it is full. */
  free(cellId: string): number {
    const view = this.#seats.cell(cellId);
    if (view === undefined || view.ceiling === null) return 0;
    const { booked, full } = this.#of(view);
    return full ? 0 : Math.max(0, view.ceiling - (view.units ?? 0) - booked);
  }

  hasToken(cellId: string): boolean {
    const view = this.#seats.cell(cellId);
    return view !== undefined && this.#of(view).tokens >= 1;
  }

  takeToken(cellId: string): void {
    this.#change(cellId, (estimate) => {
      estimate.tokens -= 1;
    });
  }

  /** The cell itself takes in nobody just now. */
  emptyTokens(cellId: string): void {
    this.#change(cellId, (estimate) => {
      estimate.tokens = 0;
    });
  }

  booked(cellId: string): void {
    this.#change(cellId, (estimate) => {
      estimate.booked += 1;
    });
  }

  /** The cell said so; believed until its next poll. */
  full(cellId: string): void {
    this.#change(cellId, (estimate) => {
      estimate.full = true;
    });
  }

  #change(cellId: string, change: (estimate: Estimate) => void): void {
    const view = this.#seats.cell(cellId);
    if (view === undefined) this.#cells.delete(cellId);
    else change(this.#of(view));
  }

  #of(view: CellView): Estimate {
    const now = this.#clock.now();
    const polledAt = now - (view.polledAgeMs ?? 0);
    let estimate = this.#cells.get(view.cellId);
    if (estimate === undefined) {
      estimate = { tokens: 0, tokensAt: this.#startedAt, polledAt, booked: 0, full: false };
      this.#cells.set(view.cellId, estimate);
    }
    estimate.tokens = Math.min(BURST, estimate.tokens + ((now - estimate.tokensAt) / 1_000) * ownIntake(view));
    estimate.tokensAt = now;
    // a millisecond is what the sums of clock readings may be off by
    if (polledAt > estimate.polledAt + 1) Object.assign(estimate, { polledAt, booked: 0, full: false });
    return estimate;
  }
}

/** New hosts a second that this director may send to a cell. */
export function ownIntake({ intake }: Pick<CellView, 'intake'>): number {
  return (intake?.perSec ?? LIMITS.defaultIntakePerSec) / DIRECTORS;
}
