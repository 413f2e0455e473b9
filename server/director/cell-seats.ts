import type { FeedChange, FeedCursor, FeedPage, FeedSeat, SeatState } from '../../contract/seat-feed.ts';
import type { AdmitMode } from '../sql-interface.ts';
import type { FeedFailure } from './feed-outcomes.ts';
import type { CompleteRead, FullPage } from './feed-read.ts';
import { hostKey } from './host-memory.ts';
import type { FeedStatus } from './seat-view.ts';

/** One cell as its feed last told it: its seats, and what it says of itself. Knows nothing of time. */

export interface Seat {
  readonly epoch: number;
  readonly generation: number;
  readonly state: SeatState;
  readonly joinedAt: number;
}

/** What a read changed for one host; the map turns it into memory. */
export type SeatNews =
  | { what: 'seated'; key: string; seat: Seat; reservedBy: string | undefined }
  /** The host has no seat here any more, or none at this epoch. `leftAt` null: seen only by its absence. */
  | {
      what: 'left';
      key: string;
      incarnation: string;
      epoch: number;
      closeCode: number | undefined;
      leftAt: number | null;
    }
  | { what: 'booked'; key: string; epoch: number }
  /** An epoch was spoken of, and nothing else. */
  | { what: 'heard'; key: string; epoch: number };

type Numbers = Pick<FeedPage, 'draining' | 'counts' | 'intake'>;

export class CellSeats {
  status: FeedStatus = 'pending';
  failure: FeedFailure | null = null;
  /** Answered once, by its feed or by having none. */
  heard = false;
  incarnation: string | null = null;
  cursor: FeedCursor | null = null;
  mode: AdmitMode | null = null;
  tripped = false;
  numbers: Numbers | null = null;
  /** By host key. Replaced, never copied. */
  seats: ReadonlyMap<string, Seat> = new Map();

  /** @returns what became of the hosts, in the order it came about. */
  take(read: CompleteRead): SeatNews[] {
    const { head } = read;
    const news = read.kind === 'full' ? this.#replace(read.head) : this.#follow(read.changes);
    if (this.incarnation !== head.incarnation) this.mode = null;
    this.incarnation = head.incarnation;
    this.cursor = { incarnation: head.incarnation, seq: read.kind === 'full' ? head.seq : read.seq };
    this.mode = modeOf(head) ?? this.mode;
    this.tripped = this.mode === 'db' && flagOf(head) === 'reserve';
    this.numbers = numbersOf(head);
    this.status = 'live';
    this.failure = null;
    this.heard = true;
    return news;
  }

  /** Takes every seat away. */
  clear(): SeatNews[] {
    const news = [...this.seats].map(([key, { epoch }]): SeatNews => ({ what: 'heard', key, epoch }));
    this.seats = new Map();
    this.cursor = null;
    return news;
  }

  #replace(page: FullPage): SeatNews[] {
    const news: SeatNews[] = [];
    const before = this.seats;
    const seats = new Map<string, Seat>();
    for (const told of page.full) {
      const key = hostKey(told);
      seats.set(key, seatOf(told));
    }
    const left = new Map<string, number>();
    for (const leaver of page.recentlyLeft) {
      const key = hostKey(leaver);
      const { epoch, closeCode, at: leftAt } = leaver;
      left.set(key, Math.max(epoch, left.get(key) ?? 0));
      news.push({ what: 'left', key, incarnation: page.incarnation, epoch, closeCode, leftAt });
    }
    const incarnation = this.incarnation ?? page.incarnation;
    for (const [key, { epoch }] of before) {
      if (seats.get(key)?.epoch === epoch) continue;
      const told = incarnation === page.incarnation && (left.get(key) ?? -1) >= epoch;
      if (told) news.push({ what: 'heard', key, epoch });
      else news.push({ what: 'left', key, incarnation, epoch, closeCode: undefined, leftAt: null });
    }
    this.seats = seats;
    for (const [key, seat] of seats) {
      if (before.get(key)?.epoch === seat.epoch && this.incarnation === page.incarnation) continue;
      news.push({ what: 'seated', key, seat, reservedBy: undefined });
    }
    return news;
  }

  #follow(changes: readonly FeedChange[]): SeatNews[] {
    const seats = this.seats as Map<string, Seat>;
    const news: SeatNews[] = [];
    for (const change of changes) news.push(...follow(seats, change, this.incarnation as string));
    return news;
  }
}

/** Applies one change. One of an older generation than the seat's is of a socket that was superseded. */
function follow(seats: Map<string, Seat>, change: FeedChange, incarnation: string): SeatNews[] {
  const { epoch, generation } = change;
  const key = hostKey(change);
  const seat = seats.get(key);
  if (change.kind === 'reserve') return [{ what: 'booked', key, epoch }];
  // what a seat says already is not kept a second time
  const heard: SeatNews[] = seat !== undefined && epoch <= seat.epoch ? [] : [{ what: 'heard', key, epoch }];
  if (seat !== undefined && generation < seat.generation) return heard;
  switch (change.kind) {
    case 'join': {
      const joined: Seat = { epoch, generation, state: change.state ?? 'active', joinedAt: change.at };
      seats.set(key, joined);
      const seated: SeatNews = { what: 'seated', key, seat: joined, reservedBy: change.reservedBy };
      const before: SeatNews[] =
        seat === undefined || seat.epoch === epoch ? [] : [{ what: 'heard', key, epoch: seat.epoch }];
      return [...before, seated];
    }
    case 'leave': {
      seats.delete(key);
      const ended = seat === undefined ? [] : [{ what: 'heard', key, epoch: seat.epoch } as const];
      return [...ended, { what: 'left', key, incarnation, epoch, closeCode: change.closeCode, leftAt: change.at }];
    }
    case 'drain-only':
    case 'active':
      if (seat !== undefined) seats.set(key, { ...seat, state: change.kind });
      return heard;
    default:
      return heard;
  }
}

function seatOf({ epoch, generation, state, joinedAt }: FeedSeat): Seat {
  return { epoch, generation, state, joinedAt };
}

/** Not the page itself, which would keep every seat of it in memory. */
function numbersOf({ draining, counts, intake }: FeedPage): Numbers {
  return { draining, counts, ...(intake === undefined ? {} : { intake }) };
}

/** What the cell admits by; null when its page does not say. */
function modeOf(page: FeedPage): AdmitMode | null {
  return page.admitModeRaw ?? page.admitModeEffective ?? flagOf(page);
}

function flagOf({ flagsApplied }: FeedPage): AdmitMode | null {
  const flag = flagsApplied?.flags.admitMode;
  return flag === 'db' || flag === 'reserve' ? flag : null;
}
