import type { CellRow } from '../sql-interface.ts';
import { isReserve, type PlanCell } from './candidates.ts';
import type { Demotions } from './demotions.ts';
import type { KnownSeat } from './known-rows.ts';
import type { HostName, SeatEntry, SeatView } from './seat-view.ts';

/** A host that was booked anew leaves no older seat behind on another reserve cell (reserve-mode 1.4). */
export class Supersede {
  readonly #fleet: { readonly cells: readonly CellRow[] };
  readonly #seats: SeatView;
  readonly #demotions: Demotions;

  constructor(fleet: { readonly cells: readonly CellRow[] }, seats: SeatView, demotions: Demotions) {
    this.#fleet = fleet;
    this.#seats = seats;
    this.#demotions = demotions;
  }

  /** Not waited for: whoever was booked is answered first. */
  below(host: HostName, newest: KnownSeat): void {
    for (const seat of outranked(this.#seats.seats(host), newest)) {
      if (this.#isReserve(seat.cellId)) void this.#demotions.demote(host, seat, 'superseded', newest);
    }
  }

  #isReserve(cellId: string): boolean {
    const row = this.#fleet.cells.find(({ cell_id }) => cell_id === cellId);
    const cell: PlanCell | null = row ? { row, view: this.#seats.cell(cellId) } : null;
    return cell !== null && isReserve(cell);
  }
}

/** Its own cell drops an older seat by itself when the host joins. */
export function outranked(seats: readonly SeatEntry[], newest: KnownSeat): SeatEntry[] {
  return seats.filter(({ cellId, epoch }) => cellId !== newest.cellId && epoch < newest.epoch);
}
