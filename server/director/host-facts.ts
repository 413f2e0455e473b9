import { CLOSE } from '../../contract/close-codes.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { KnownSeat } from './known-rows.ts';
import type { HostName, LeaverEntry, SeatEntry, SeatView } from './seat-view.ts';

/** What a director knows of one host without asking anybody, as the reserve plan weighs it (reserve-mode 1.4, rules 2, 3, 5). */

export interface HostKnowledge {
  /** The highest epoch first. */
  seats: readonly SeatEntry[];
  /** Newest first. */
  leavers: readonly LeaverEntry[];
  bookedEpoch: number;
  floor: number;
  /** A move just committed. */
  pending: KnownSeat | null;
  /** Its row, as an answer of Postgres told it. */
  row: KnownSeat | null;
}

/** The place that the host may go back to without anybody being asked. */
export interface Rejoin extends KnownSeat {
  incarnation: string;
  /** It sits there by the map; else it left. */
  seated: boolean;
  /** How it left was not told, so that the cell is asked in any case. */
  unsure: boolean;
}

export interface HostFacts {
  /** At least every epoch that anything here names; what is minted lies above. */
  floor: number;
  /** Something is known that is not long past. */
  known: boolean;
  /**
   * Its row says more than this memory: the newest it did was to be closed for sitting on the wrong cell, or of something newer
   * nothing is left but the number: of an expired seat, or of a row read long ago.
   */
  outranked: boolean;
  rejoin: Rejoin | null;
  /** The cell that told it to leave, if that was the newest it did: not the first choice for it. */
  leftCellId: string | null;
  /** Where it was last, whatever came of it. */
  lastCellId: string | null;
}

export function hostFacts(knowledge: HostKnowledge): HostFacts {
  const { seats, leavers, bookedEpoch, pending, row } = knowledge;
  const recent = leavers.filter(({ ageMs }) => ageMs <= LIMITS.rejoinMs);
  const places = [seats[0], pending, newestOf(leavers), row].filter((place) => place != null);
  const newest = Math.max(bookedEpoch, ...places.map(({ epoch }) => epoch), 0);
  const [left] = recent;
  const wasLast = left !== undefined && !seats.some(({ epoch }) => epoch > left.epoch);
  const floor = Math.max(knowledge.floor, newest);
  return {
    floor,
    known: seats.length > 0 || recent.length > 0 || bookedEpoch > 0 || pending !== null || row !== null,
    outranked: newest < floor || (wasLast && left.closeCode === CLOSE.WRONG_CELL),
    leftCellId: wasLast && isTold(left) ? left.cellId : null,
    rejoin: newest < floor ? null : rejoinAt(newest, seats, recent, row),
    lastCellId: newestOf(places)?.cellId ?? null,
  };
}

export function knowledgeOf(
  host: HostName,
  seats: SeatView,
  { pending, row }: Pick<HostKnowledge, 'pending' | 'row'>,
): HostKnowledge {
  return {
    seats: seats.seats(host),
    leavers: seats.leavers(host),
    bookedEpoch: seats.bookedEpoch(host),
    floor: seats.floor(host),
    pending,
    row,
  };
}

/** Only its newest epoch, and not if its row gives that epoch to another cell. */
function rejoinAt(
  newest: number,
  seats: readonly SeatEntry[],
  recent: readonly LeaverEntry[],
  row: KnownSeat | null,
): Rejoin | null {
  const isIts = ({ cellId, epoch }: KnownSeat) =>
    epoch === newest && !(row !== null && row.epoch === epoch && row.cellId !== cellId);
  const seat = seats.find(isIts);
  if (seat !== undefined) {
    const { cellId, epoch, incarnation } = seat;
    return seat.state === 'active' ? { cellId, epoch, incarnation, seated: true, unsure: false } : null;
  }
  const left = recent.find(isIts);
  if (left === undefined || isTold(left)) return null;
  const { cellId, epoch, incarnation } = left;
  return { cellId, epoch, incarnation, seated: false, unsure: left.closeCode === undefined };
}

/** Its cell closed it, for good. */
function isTold({ closeCode }: LeaverEntry): boolean {
  return closeCode === CLOSE.DRAINING || closeCode === CLOSE.WRONG_CELL;
}

/** The first of the highest epoch. */
function newestOf<P extends KnownSeat>(places: readonly P[]): P | undefined {
  return places.reduce<P | undefined>((best, place) => (best && best.epoch >= place.epoch ? best : place), undefined);
}
