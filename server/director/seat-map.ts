import type { FeedCursor } from '../../contract/seat-feed.ts';
import type { Clock } from '../clock.ts';
import type { AdmitMode } from '../sql-interface.ts';
import { CellSeats, type Seat, type SeatNews } from './cell-seats.ts';
import { type FeedFailure, MEANING } from './feed-outcomes.ts';
import type { CompleteRead } from './feed-read.ts';
import { BookedEpochs, Floors, hostKey, hostOfKey, Leavers, startsKey } from './host-memory.ts';
import { SeatArm } from './seat-arm.ts';
import type { CellView, HostName, LeaverEntry, OwnerEntry, SeatEntry, SeatView } from './seat-view.ts';

/**
 * Who sits where, as the cells' feeds tell it (`ownership.md` F1–F6, F10–F13). A seat is held once, under its cell, so that a read
 * replaces all of a cell's seats at once; a question about a host asks each cell. What was heard of hosts beyond their seats
 * is in {@link Floors}, {@link Leavers} and {@link BookedEpochs}, which no expiry touches.
 */

/** A cell as it is polled. */
export interface FedCell {
  cellId: string;
  /** Of its process, as its heartbeat said it. */
  incarnation: string | null;
  /** Whether the map is incomplete until this cell has answered once. */
  required: boolean;
}

export type RefreshOutcome = { ok: true; read: CompleteRead } | { ok: false; failure: FeedFailure };

/** A refresh under way; what it brings counts only if nothing that began later was applied before (F12). */
export interface Refresh {
  readonly cellId: string;
  readonly sequence: number;
  /** Null asks for everything. */
  readonly cursor: FeedCursor | null;
}

export type RefreshAction = 'replaced' | 'retained' | 'expired' | 'dropped';

/** What a refresh did to the map (F10). */
export interface RefreshReport {
  action: RefreshAction;
  /** Seats that are held now. */
  entries: number;
  /** Since the last success before this refresh; null when there was none. */
  ageMs: number | null;
}

export type UnavailableReason = 'retention_expired' | 'unauthorized' | 'no_feed' | 'removed';

export type CellEvent =
  | { type: 'open'; cellId: string }
  /** What happened between two reads is not known one by one: the cell's seats are told anew. */
  | { type: 'gap'; cellId: string }
  | {
      type: 'unavailable';
      cellId: string;
      reason: UnavailableReason;
      lastGoodAt: number | null;
      retainedForMs: number;
    };

export interface FeedJoin extends HostName {
  epoch: number;
  joinedAt: number;
  /** Director that booked the seat; unknown for seats that a full snapshot told. */
  reservedBy?: string;
}

export interface FeedLeave extends HostName {
  epoch: number;
  /** Unknown of one that was only missed in a full snapshot. */
  closeCode?: number;
}

export interface PageEvent {
  /** Seats that the map did not hold before. */
  joins: readonly FeedJoin[];
  leaves: readonly FeedLeave[];
  /** The read had every page: what it does not name is not there. A read that fails midway is never told. */
  complete: true;
}

type CellListener = (event: CellEvent) => void;
type PageListener = (cellId: string, page: PageEvent) => void;

interface Held {
  readonly seats: CellSeats;
  readonly arm: SeatArm;
  required: boolean;
  /** Of the heartbeat. */
  process: string | null;
  begun: number;
  applied: number;
}

export class SeatMap implements SeatView {
  readonly #clock: Clock;
  readonly #retentionMs: number;
  readonly #cells = new Map<string, Held>();
  readonly #floors = new Floors();
  readonly #booked = new BookedEpochs();
  readonly #leavers = new Leavers();
  readonly #cellListeners: CellListener[] = [];
  readonly #pageListeners: PageListener[] = [];
  #sequence = 0;
  #listed = false;

  /** @param retentionMs 0 drops a cell's seats at the first refresh that fails. */
  constructor(clock: Clock, { retentionMs }: { retentionMs: number }) {
    this.#clock = clock;
    this.#retentionMs = retentionMs;
  }

  onCell(listener: CellListener): void {
    this.#cellListeners.push(listener);
  }

  /** Called after a complete read was taken in. */
  onPage(listener: PageListener): void {
    this.#pageListeners.push(listener);
  }

  /** The cells of the configuration: one that is not among them is forgotten at once (F13), all but the epochs heard of it. */
  setCells(cells: readonly FedCell[]): void {
    const named = new Set(cells.map(({ cellId }) => cellId));
    for (const [cellId, held] of this.#cells) {
      if (named.has(cellId)) continue;
      this.#cells.delete(cellId);
      this.#drop(cellId, held, 'removed');
    }
    for (const { cellId, incarnation, required } of cells) {
      const held = this.#cells.get(cellId) ?? this.#add(cellId, incarnation);
      held.required = required;
      const replaced = held.process !== incarnation && incarnation !== held.seats.incarnation;
      // A cell without a feed keeps the mode that its feed last said, until another process runs there.
      if (replaced && held.seats.status === 'no-feed') held.seats.mode = null;
      held.process = incarnation;
    }
    this.#listed = true;
  }

  /** Null for a cell that is not in the configuration. */
  begin(cellId: string): Refresh | null {
    const held = this.#cells.get(cellId);
    if (held === undefined) return null;
    this.#sequence += 1;
    return { cellId, sequence: this.#sequence, cursor: held.seats.cursor };
  }

  /** Null when the refresh is ignored: its cell has left, or a later refresh was applied before it ended. */
  apply(refresh: Refresh, outcome: RefreshOutcome): RefreshReport | null {
    const held = this.#cells.get(refresh.cellId);
    if (held === undefined || refresh.sequence <= held.applied || refresh.sequence < held.begun) return null;
    held.applied = refresh.sequence;
    held.arm.check();
    const { ageMs } = held.arm;
    const action = outcome.ok
      ? this.#take(refresh, held, outcome.read)
      : this.#fail(refresh.cellId, held, outcome.failure);
    return { action, entries: held.seats.seats.size, ageMs };
  }

  seats(host: HostName): readonly SeatEntry[] {
    const key = hostKey(host);
    const found: SeatEntry[] = [];
    for (const [cellId, held] of this.#cells) {
      held.arm.check();
      const seat = held.seats.seats.get(key);
      if (seat !== undefined) found.push(entryOf(cellId, held.seats, seat));
    }
    return found.sort((a, b) => b.epoch - a.epoch);
  }

  *seatsOn(cellId: string): Generator<{ host: HostName; seat: SeatEntry }> {
    const held = this.#cells.get(cellId);
    held?.arm.check();
    for (const [key, seat] of held?.seats.seats ?? []) {
      yield { host: hostOfKey(key), seat: entryOf(cellId, (held as Held).seats, seat) };
    }
  }

  owner(host: HostName): OwnerEntry | null {
    const [newest] = this.seats(host);
    const held = newest && this.#cells.get(newest.cellId);
    if (newest === undefined || held === undefined) return null;
    return { ...newest, freshness: held.arm.failing ? 'retained' : 'fresh', ageMs: held.arm.ageMs ?? 0 };
  }

  leavers(host: HostName): readonly LeaverEntry[] {
    const now = this.#clock.now();
    return this.#leavers.of(hostKey(host), now).map(({ cellId, incarnation, epoch, closeCode, at }) => ({
      cellId,
      incarnation,
      epoch,
      closeCode,
      ageMs: now - at,
    }));
  }

  bookedEpoch(host: HostName): number {
    return this.#booked.of(hostKey(host));
  }

  floor(host: HostName): number {
    const key = hostKey(host);
    let floor = this.#floors.of(key);
    for (const { seats } of this.#cells.values()) floor = Math.max(floor, seats.seats.get(key)?.epoch ?? 0);
    return floor;
  }

  raiseFloor(host: HostName, epoch: number): void {
    this.#floors.raise(hostKey(host), epoch);
  }

  cell(cellId: string): CellView | undefined {
    const held = this.#cells.get(cellId);
    return held && viewOf(cellId, held);
  }

  cells(): readonly CellView[] {
    return [...this.#cells].map(([cellId, held]) => viewOf(cellId, held));
  }

  named(relayHostId: string): readonly HostName[] {
    const known = [this.#floors.hosts(), this.#leavers.hosts(), ...[...this.#cells.values()].map(seatedHosts)];
    const keys = new Set<string>();
    for (const hosts of known) for (const key of hosts) if (startsKey(relayHostId, key)) keys.add(key);
    return [...keys].map(hostOfKey);
  }

  complete(): boolean {
    return this.#listed && [...this.#cells.values()].every(({ required, seats }) => !required || seats.heard);
  }

  /** How many cells' last refresh failed, by how it did. */
  failures(): ReadonlyMap<FeedFailure, number> {
    const counts = new Map<FeedFailure, number>();
    for (const { seats } of this.#cells.values()) {
      if (seats.failure !== null) counts.set(seats.failure, (counts.get(seats.failure) ?? 0) + 1);
    }
    return counts;
  }

  /** Entries of each kind. */
  sizes(): { seats: number; leavers: number; bookings: number; floors: number; sharedFloors: number } {
    let seats = 0;
    for (const held of this.#cells.values()) seats += held.seats.seats.size;
    return {
      seats,
      leavers: this.#leavers.size,
      bookings: this.#booked.size,
      floors: this.#floors.size,
      sharedFloors: this.#floors.forgotten.shared,
    };
  }

  stop(): void {
    for (const { arm } of this.#cells.values()) arm.shut();
  }

  #add(cellId: string, incarnation: string | null): Held {
    const held: Held = {
      seats: new CellSeats(),
      arm: new SeatArm(this.#clock, this.#retentionMs, () => this.#expired(cellId, held)),
      required: false,
      process: incarnation,
      // A refresh of an earlier entry of this name is not this one's.
      begun: this.#sequence + 1,
      applied: 0,
    };
    this.#cells.set(cellId, held);
    return held;
  }

  #take({ cellId, cursor }: Refresh, held: Held, read: CompleteRead): RefreshAction {
    // What the changes follow on was dropped while they were under way.
    const torn = read.kind === 'changes' && cursor !== held.seats.cursor;
    return torn ? this.#fail(cellId, held, 'cursor_gap') : this.#replace(cellId, held, read);
  }

  #replace(cellId: string, held: Held, read: CompleteRead): RefreshAction {
    const anew = held.arm.ageMs !== null && read.kind === 'full';
    const news = held.seats.take(read);
    const opens = held.arm.succeeded();
    const joins: FeedJoin[] = [];
    const leaves: FeedLeave[] = [];
    for (const item of news) {
      this.#learn(cellId, item, read.head.at);
      if (item.what === 'left') {
        const { epoch, closeCode } = item;
        leaves.push({ ...hostOfKey(item.key), epoch, ...(closeCode === undefined ? {} : { closeCode }) });
      }
      if (item.what !== 'seated') continue;
      const { epoch, joinedAt } = item.seat;
      const { reservedBy } = item;
      joins.push({ ...hostOfKey(item.key), epoch, joinedAt, ...(reservedBy === undefined ? {} : { reservedBy }) });
    }
    if (opens) this.#tellCell({ type: 'open', cellId });
    if (anew) this.#tellCell({ type: 'gap', cellId });
    for (const listener of this.#pageListeners) listener(cellId, { joins, leaves, complete: true });
    return 'replaced';
  }

  #fail(cellId: string, held: Held, failure: FeedFailure): RefreshAction {
    const { seats, arm } = held;
    const meaning = MEANING[failure];
    seats.status = failure === 'no_feed' ? 'no-feed' : 'unverifiable';
    seats.failure = failure;
    if (failure === 'no_feed') {
      seats.heard = true;
      seats.numbers = null;
    }
    if (meaning.cursor === 'drop') seats.cursor = null;
    if (meaning.seats === 'drop') {
      this.#drop(cellId, held, failure === 'no_feed' ? 'no_feed' : 'unauthorized');
      return 'dropped';
    }
    arm.failed();
    if (arm.open) return 'retained';
    return arm.ageMs === null ? 'dropped' : 'expired';
  }

  #expired(cellId: string, held: Held): void {
    this.#takeAway(cellId, held, 'retention_expired');
  }

  #drop(cellId: string, held: Held, reason: UnavailableReason): void {
    if (!held.arm.open) return;
    held.arm.shut();
    this.#takeAway(cellId, held, reason);
  }

  /** The epochs stay behind as floors (F5). */
  #takeAway(cellId: string, held: Held, reason: UnavailableReason): void {
    for (const item of held.seats.clear()) this.#learn(cellId, item, 0);
    const { lastGoodAt, ageMs } = held.arm;
    this.#tellCell({ type: 'unavailable', cellId, reason, lastGoodAt, retainedForMs: Math.round(ageMs ?? 0) });
  }

  /** @param pageAt the cell's wall clock when it said so. */
  #learn(cellId: string, item: SeatNews, pageAt: number): void {
    if (item.what === 'seated') {
      this.#floors.settle(item.key, item.seat.epoch);
      return;
    }
    this.#floors.raise(item.key, item.epoch);
    if (item.what === 'booked') this.#booked.note(item.key, item.epoch);
    if (item.what === 'left') {
      const { key, incarnation, epoch, closeCode, leftAt } = item;
      const at = this.#clock.now() - (leftAt === null ? 0 : Math.max(0, pageAt - leftAt));
      this.#leavers.note(key, { cellId, incarnation, epoch, closeCode, leftAt, at });
    }
  }

  #tellCell(event: CellEvent): void {
    for (const listener of this.#cellListeners) listener(event);
  }
}

function seatedHosts({ seats }: Held): Iterable<string> {
  return seats.seats.keys();
}

function entryOf(cellId: string, { incarnation }: CellSeats, { epoch, generation, state, joinedAt }: Seat): SeatEntry {
  return { cellId, incarnation: incarnation ?? '', epoch, generation, state, joinedAt };
}

function viewOf(cellId: string, { seats, arm }: Held): CellView {
  const { status, incarnation, numbers } = seats;
  const mode: AdmitMode | null = seats.mode;
  return {
    cellId,
    status,
    incarnation,
    mode,
    tripped: seats.tripped,
    draining: numbers?.draining ?? false,
    units: numbers?.counts.units ?? null,
    ceiling: numbers?.counts.ceiling ?? null,
    intake: numbers?.intake ?? null,
    polledAgeMs: numbers === null ? null : arm.ageMs,
  };
}
