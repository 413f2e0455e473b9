import type { CellRow, Change } from '../sql-interface.ts';
import { type OwnerVerdict, ownerOf, type PhoneStep, phoneStep, type RowReading } from './owner-lookup.ts';
import { moveIn, type PendingMoves } from './pending-moves.ts';
import type { HostName, SeatView } from './seat-view.ts';

/** Answers who serves a host, from everything that a director knows of it. */

export interface OwnersParts {
  seats: SeatView;
  pending: PendingMoves;
  /** As last read. */
  cells: () => readonly CellRow[];
}

export class Owners {
  readonly #parts: OwnersParts;

  constructor(parts: OwnersParts) {
    this.#parts = parts;
  }

  /** Another director, a sweep or an operator placed or moved a host. */
  announced(change: Change): void {
    const moved = moveIn(change);
    if (moved === null) return;
    this.#parts.pending.note(moved.host, moved.move, 'change');
    this.#parts.seats.raiseFloor(moved.host, moved.move.epoch);
  }

  judge(host: HostName, row: RowReading): OwnerVerdict {
    const { pending, seats } = this.#parts;
    if (typeof row !== 'string') seats.raiseFloor(host, row.epoch);
    return ownerOf({ pending: pending.of(host), entry: seats.owner(host), row, floor: seats.floor(host) });
  }

  phoneStep(verdict: OwnerVerdict): PhoneStep {
    const reserve = this.#parts.cells().some(({ admit_mode }) => admit_mode === 'reserve');
    return phoneStep(verdict, this.#parts.seats.complete(), reserve);
  }

  cell(cellId: string): CellRow | undefined {
    return this.#parts.cells().find(({ cell_id }) => cell_id === cellId);
  }
}
