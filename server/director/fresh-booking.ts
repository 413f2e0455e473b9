import type { CellRow } from '../sql-interface.ts';
import type { Booked, BookingClient } from './booking-client.ts';
import { type BookingEstimates, ownIntake } from './booking-estimates.ts';
import {
  betterOfTwo,
  type Candidate,
  candidateOf,
  type PlanCell,
  planCells,
  type RegionOffer,
  regionOffer,
  regionsToTry,
} from './candidates.ts';
import type { KnownSeat } from './known-rows.ts';
import type { Pace } from './pace.ts';
import type { PlacementMemory } from './placement-memory.ts';
import type { HostName, SeatView } from './seat-view.ts';

/** A place for a host on a reserve cell: whom to ask, at which epoch, and what a no means (reserve-mode 1.4). */

/** Of one request of a host, whatever becomes of them. */
export const MAX_BOOKINGS = 3;

export interface FreshBookingParts {
  client: BookingClient;
  estimates: BookingEstimates;
  fleet: { readonly cells: readonly CellRow[] };
  memory: PlacementMemory;
  pace: Pace;
  random: () => number;
  /** Where a host goes that names no region, and where there is no room in the one it names. */
  region: string;
  seats: SeatView;
}

export interface Wanted {
  host: HostName;
  /** Its wish, or where it was last. */
  region: string | null;
  /** What it is given lies above. */
  floor: number;
  /** The cell that it was told to leave: only where there is no other. */
  avoid: string | null;
  bookings: number;
}

/** `paced`: its cells take in nobody just now, and the database has no cell there. */
export type FreshResult =
  | { kind: 'booked'; seat: KnownSeat & { cellUrl: string } }
  | { kind: 'database' }
  | { kind: 'paced'; retryAfterMs: number };

interface Search {
  host: HostName;
  avoid: string | null;
  epoch: number;
  left: number;
  /** Cells that said no. */
  refused: Set<string>;
}

export class FreshBooking {
  readonly #parts: FreshBookingParts;

  constructor(parts: FreshBookingParts) {
    this.#parts = parts;
  }

  async find({ host, region, floor, avoid, bookings }: Wanted): Promise<FreshResult> {
    const { estimates, pace, random } = this.#parts;
    const search: Search = { host, avoid, epoch: floor + 1, left: bookings, refused: new Set() };
    const waitedFor: Candidate[] = [];
    let database = false;
    for (const name of regionsToTry(this.#cells(), region, this.#parts.region)) {
      const offer = this.#offer(name);
      if (offer.bookingShare === null) continue;
      if (random() >= offer.bookingShare) return { kind: 'database' };
      const seat = await this.#bookIn(name, search);
      if (seat !== null) return { kind: 'booked', seat };
      database ||= offer.database;
      waitedFor.push(
        ...this.#offer(name).candidates.filter(({ free, cellId }) => free > 0 && !estimates.hasToken(cellId)),
      );
    }
    const [first] = waitedFor;
    if (database || first === undefined) return { kind: 'database' };
    const perSecond = waitedFor.reduce((sum, { view }) => sum + ownIntake(view), 0);
    return { kind: 'paced', retryAfterMs: pace.promise(first.region, perSecond) };
  }

  /** What {@link find} would ask first, asked as a trial. */
  async rehearse(host: HostName, region: string | null, floor: number): Promise<Booked | null> {
    const { random, client } = this.#parts;
    const [name] = regionsToTry(this.#cells(), region, this.#parts.region);
    if (name === undefined) return null;
    const { candidates } = this.#offer(name, { dryRun: true });
    const choice = betterOfTwo(
      candidates.filter(({ free }) => free > 0),
      random,
    );
    return choice ? client.book(choice, { host, epoch: floor + 1, sticky: false }, { dryRun: true }) : null;
  }

  #cells(): PlanCell[] {
    return planCells(this.#parts.fleet.cells, this.#parts.seats);
  }

  /** As things stand now: they change while a cell is asked. */
  #offer(region: string, options?: { dryRun: boolean }): RegionOffer {
    const cells = this.#cells();
    const candidates = cells.map((cell) => candidateOf(cell, this.#parts.estimates, options));
    return regionOffer(
      region,
      cells,
      candidates.filter((found) => found !== null),
    );
  }

  async #bookIn(region: string, search: Search): Promise<(KnownSeat & { cellUrl: string }) | null> {
    const { client, estimates, memory, random } = this.#parts;
    while (search.left > 0) {
      const open = this.#offer(region).candidates.filter(
        ({ cellId, free }) => !search.refused.has(cellId) && free > 0 && estimates.hasToken(cellId),
      );
      const elsewhere = open.filter(({ cellId }) => cellId !== search.avoid);
      const cell = betterOfTwo(elsewhere.length > 0 ? elsewhere : open, random);
      if (cell === undefined) return null;
      const { host, epoch } = search;
      search.left -= 1;
      estimates.takeToken(cell.cellId);
      const booked = await client.book(cell, { host, epoch, sticky: false });
      if (booked.outcome === 'ok') {
        estimates.booked(cell.cellId);
        memory.booked(host, { cellId: cell.cellId, epoch });
        return { cellId: cell.cellId, cellUrl: cell.url, epoch };
      }
      this.#noted(cell, booked, search);
    }
    return null;
  }

  /** A cell that knows the host at a newer epoch is asked again above that; any other no is not asked again. */
  #noted(cell: Candidate, booked: Booked, search: Search): void {
    const { estimates, memory } = this.#parts;
    if (booked.outcome === 'seated-newer') {
      memory.heard(search.host, booked.epoch);
      search.epoch = Math.max(search.epoch, booked.epoch + 1);
      return;
    }
    search.refused.add(cell.cellId);
    if (booked.outcome === 'unreachable') {
      memory.heard(search.host, search.epoch);
      search.epoch += 1;
    }
    if (booked.outcome === 'full') estimates.full(cell.cellId);
    if (booked.outcome === 'intake') estimates.emptyTokens(cell.cellId);
  }
}
