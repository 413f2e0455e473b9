import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import type { ReservePlacement } from '../config.ts';
import type { ParamsOf } from '../sql-interface.ts';
import { type HostFacts, hostFacts, knowledgeOf } from './host-facts.ts';
import { KnownRows, type KnownSeat } from './known-rows.ts';
import type { PendingMoves } from './pending-moves.ts';
import type { HostName, SeatView } from './seat-view.ts';

/** What a director tells Postgres of a host, and what it keeps of the answers: seats, moves and rows together. */

export type Hints = Required<Pick<ParamsOf<'assign'>, 'epoch_floor' | 'seen'>>;

export interface PlacementMemoryParts {
  clock: Clock;
  mode: ReservePlacement;
  pending: PendingMoves;
  seats: SeatView;
}

export class PlacementMemory {
  readonly #mode: ReservePlacement;
  readonly #pending: PendingMoves;
  readonly #seats: SeatView;
  readonly #rows: KnownRows;
  #epochBase = 0;

  constructor({ clock, mode, pending, seats }: PlacementMemoryParts) {
    this.#mode = mode;
    this.#pending = pending;
    this.#seats = seats;
    this.#rows = new KnownRows(clock);
  }

  facts(host: HostName): HostFacts {
    const [pending, row] = [this.#pending.of(host), this.#rows.of(host)];
    return hostFacts(knowledgeOf(host, this.#seats, { pending, row }));
  }

  /** What a new epoch of the host lies above. The base is no floor of its own: a seat below it is as good as it was. */
  mintFloor({ floor }: Pick<HostFacts, 'floor'>): number {
    return Math.max(floor, this.#epochBase);
  }

  /** Postgres says so; it never falls. */
  baseIs(base: number): void {
    this.#epochBase = Math.max(this.#epochBase, base);
  }

  /**
   * Which epoch is to be exceeded, and the newest seat that the map knows (03, epoch minted). A director that books nothing
   * gives no floor, and neither does one whose map has not heard all cells yet: what they do not know may be newer.
   */
  hints(host: HostName): Hints {
    if (this.#mode !== 'on') return { epoch_floor: null, seen: null };
    const seat = this.#seats.seats(host).find(({ epoch }) => epoch > 0);
    return {
      epoch_floor: this.#seats.complete() ? this.facts(host).floor : null,
      seen: seat === undefined ? null : { cell_id: seat.cellId, epoch: seat.epoch },
    };
  }

  /** Postgres granted it. An epoch that nobody spoke of before is a move that no feed shows yet. */
  granted(host: HostName, seat: KnownSeat): void {
    const fresh = seat.epoch > this.facts(host).floor;
    this.rowIs(host, seat);
    if (fresh) this.#pending.note(host, seat, 'own');
  }

  /** Postgres may have minted one more epoch and not been able to say so: nobody else is to be given it. */
  perhapsGranted(host: HostName, { epoch_floor: floor }: Hints): void {
    this.heard(host, this.mintFloor(this.facts(host)) + (floor === null ? LIMITS.epochJump : 1));
  }

  /** The row of the host says so, whoever wrote it. What the map shows by itself need not be kept a second time. */
  rowIs(host: HostName, seat: KnownSeat): void {
    this.#seats.raiseFloor(host, seat.epoch);
    const isShown = this.#seats.seats(host).some(({ cellId, epoch }) => cellId === seat.cellId && epoch === seat.epoch);
    if (!isShown) this.#rows.note(host, seat);
  }

  /** Rows may have changed without a word: what they said is not to be relied on. Floors stay. */
  forgetRows(): void {
    this.#rows.clear();
  }

  booked(host: HostName, seat: KnownSeat): void {
    this.#seats.raiseFloor(host, seat.epoch);
    this.#pending.note(host, seat, 'own');
  }

  /** A cell knows the host at this epoch; or it did not answer, and may. */
  heard(host: HostName, epoch: number): void {
    this.#seats.raiseFloor(host, epoch);
  }
}
