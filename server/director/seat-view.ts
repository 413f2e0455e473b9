import type { AdmitMode } from '../sql-interface.ts';

/** What a director's memory says about hosts and cells, as its readers see it. Ages are on the monotonic clock. */

export interface HostName {
  userId: string;
  relayHostId: string;
}

export interface SeatEntry {
  cellId: string;
  incarnation: string;
  epoch: number;
  generation: number;
  state: 'active' | 'drain-only';
  /** Of the cell's wall clock, as its feed said it: names the seat in a demote. */
  joinedAt: number;
}

export interface LeaverEntry {
  cellId: string;
  incarnation: string;
  epoch: number;
  /** Undefined when the leave was only seen by its absence from a snapshot. */
  closeCode: number | undefined;
  /** Milliseconds ago. */
  ageMs: number;
}

/** `retained` while reads fail that came after the last complete one, within the retention (F1). */
export type Freshness = 'fresh' | 'retained';

export interface OwnerEntry extends SeatEntry {
  freshness: Freshness;
  /** Since the cell's last complete read. */
  ageMs: number;
}

export type FeedStatus = 'pending' | 'live' | 'no-feed' | 'unverifiable';

export interface CellView {
  cellId: string;
  status: FeedStatus;
  incarnation: string | null;
  /** Raw if the feed says it, else effective, else what its flags say; null while no feed has said anything. */
  mode: AdmitMode | null;
  /** Its flags say reserve, and it fell back to the database. */
  tripped: boolean;
  draining: boolean;
  units: number | null;
  /** Null: the cell hides it, and is no candidate for a booking. */
  ceiling: number | null;
  intake: { perSec: number; burst: number; tokens: number } | null;
  /** Since the last complete read of its feed; null before the first, and once the cell answers that it has none. */
  polledAgeMs: number | null;
}

export interface SeatView {
  /** Every seat of the host that is fresh or retained, the highest epoch first. */
  seats(host: HostName): readonly SeatEntry[];
  /** Every seat of a cell that is fresh or retained. */
  seatsOn(cellId: string): Iterable<{ host: HostName; seat: SeatEntry }>;
  /** Who serves the host now: the highest epoch wins (F5). Null when no fresh or retained entry names it. */
  owner(host: HostName): OwnerEntry | null;
  /** Newest first, at most four, none older than 24 h. */
  leavers(host: HostName): readonly LeaverEntry[];
  /** The newest epoch that any cell reported booked; 0 if none. */
  bookedEpoch(host: HostName): number;
  /**
   * No lower than the highest epoch this director ever heard of for the host, from any source; 0 if none. Expiry never
   * lowers it. May be higher for a host that shares its place with one forgotten (`forgotten-floors.ts`).
   */
  floor(host: HostName): number;
  /** A row, a grant or a booking of our own taught us an epoch. */
  raiseFloor(host: HostName, epoch: number): void;
  cell(cellId: string): CellView | undefined;
  cells(): readonly CellView[];
  /** Every account under which the map knows a host of this id; for one look-up by a person. */
  named(relayHostId: string): readonly HostName[];
  /** Every required cell has answered once, by a page or by a 404. */
  complete(): boolean;
}
