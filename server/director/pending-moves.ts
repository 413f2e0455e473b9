import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import type { Change } from '../sql-interface.ts';
import { hostKey } from './outcomes.ts';
import type { HostName, SeatView } from './seat-view.ts';

/**
 * Moves just committed that no feed shows yet: by this director, or read from the change log (F9). They shadow the seat
 * that a host had before (F6) until its new cell is read with the host on it, or nobody came.
 */

/** A booking that is used at its last moment is seen by a poll within this. */
const TTL_MS = LIMITS.bookingTtlMs + LIMITS.feedPollMs + LIMITS.feedTimeoutMs;

/** `change`: the row says so. `own`: this director granted or booked it, and a row may yet say otherwise. */
export type MoveSource = 'own' | 'change';

export interface Move {
  cellId: string;
  epoch: number;
}

export interface PendingMove extends Move {
  source: MoveSource;
  /** Since it was noted. */
  ageMs: number;
}

interface Entry extends Move {
  host: HostName;
  source: MoveSource;
  at: number;
}

export class PendingMoves {
  readonly #clock: Clock;
  /** By host, the oldest first. */
  readonly #entries = new Map<string, Entry>();
  readonly #byCell = new Map<string, Set<string>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#entries.size;
  }

  /**
   * A lower epoch changes nothing (F5); at the same epoch what the row says stands. Beyond 100 000 moves the oldest is
   * forgotten: its row, or the feed of its cell, says the same a little later.
   */
  note(host: HostName, { cellId, epoch }: Move, source: MoveSource): void {
    this.#dropExpired();
    const key = hostKey(host.userId, host.relayHostId);
    const before = this.#entries.get(key);
    if (before !== undefined) {
      if (before.epoch > epoch || (before.epoch === epoch && (before.source === 'change' || source === 'own'))) return;
      this.#drop(key, before);
    }
    this.#entries.set(key, { host, cellId, epoch, source, at: this.#clock.now() });
    const onCell = this.#byCell.get(cellId);
    if (onCell) onCell.add(key);
    else this.#byCell.set(cellId, new Set([key]));
    for (const [oldest, entry] of this.#entries) {
      if (this.#entries.size <= LIMITS.rememberedHosts) break;
      this.#drop(oldest, entry);
    }
  }

  of(host: HostName): PendingMove | null {
    const entry = this.#entries.get(hostKey(host.userId, host.relayHostId));
    const ageMs = entry === undefined ? 0 : this.#clock.now() - entry.at;
    if (entry === undefined || ageMs >= TTL_MS) return null;
    const { cellId, epoch, source } = entry;
    return { cellId, epoch, source, ageMs };
  }

  /** After a complete read of a cell: what it shows, or what a newer seat anywhere outranks, is pending no longer. */
  settle(cellId: string, seats: Pick<SeatView, 'seats'>): void {
    for (const key of this.#byCell.get(cellId) ?? []) {
      const entry = this.#entries.get(key) as Entry;
      const settled = seats
        .seats(entry.host)
        .some((seat) => seat.epoch > entry.epoch || (seat.epoch === entry.epoch && seat.cellId === cellId));
      if (settled) this.#drop(key, entry);
    }
  }

  #dropExpired(): void {
    const now = this.#clock.now();
    for (const [key, entry] of this.#entries) {
      if (now - entry.at < TTL_MS) return;
      this.#drop(key, entry);
    }
  }

  #drop(key: string, { cellId }: Entry): void {
    this.#entries.delete(key);
    const onCell = this.#byCell.get(cellId);
    onCell?.delete(key);
    if (onCell?.size === 0) this.#byCell.delete(cellId);
  }
}

/** The move that a change announces; null for a change of another kind. */
export function moveIn(change: Change): { host: HostName; move: Move } | null {
  const { kind, user_id: userId, relay_host_id: relayHostId, to_cell: cellId, epoch } = change;
  if (kind !== 'placed' && kind !== 'moved' && kind !== 'recorded') return null;
  if (userId === null || relayHostId === null || cellId === null || epoch === null) return null;
  return { host: { userId, relayHostId }, move: { cellId, epoch } };
}
