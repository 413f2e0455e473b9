import { BOOKING_OUTCOMES, type BookingItem, type BookingOutcome, reserveReply } from '../../contract/booking.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { Clock, Timer } from '../clock.ts';
import type { Metrics } from '../metrics.ts';
import { callCell } from './cell-call.ts';
import type { CellAddress, CellPost } from './cell-post.ts';
import type { HostName } from './seat-view.ts';

/**
 * Asks cells to keep seats. Asks of one cell that come within 5 ms go together, as many as fit a request; a request that
 * fails in any way leaves each of its asks `unreachable`, and none is sent twice: the cell may have said yes.
 */

const PATH = '/internal/reserve';
/** Of one cell, unsent and unanswered: a cell this far behind could not answer the next one in time. */
const MAX_ASKS_A_CELL = 1_024;

/** `unreachable`: no answer, so perhaps booked. `unknown`: an answer that this reader does not know, which is a no. */
export type BookedOutcome = BookingOutcome | 'unreachable' | 'unknown';

export type Booked =
  | { outcome: Exclude<BookedOutcome, 'seated-newer'> }
  | {
      outcome: 'seated-newer';
      /** At which the cell knows the host. */
      epoch: number;
    };

export interface BookingAsk {
  host: HostName;
  epoch: number;
  /** The host sat there before the cell restarted. */
  sticky: boolean;
}

interface Waiting {
  json: string;
  answer: (booked: Booked) => void;
}

interface Batch {
  cell: CellAddress;
  dryRun: boolean;
  asks: Waiting[];
  bytes: number;
  timer: Timer;
}

export interface BookingClientParts {
  clock: Clock;
  /** What cells are held to. */
  peerTime: Clock;
  metrics: Metrics;
  post: CellPost;
  directorId: string;
}

export class BookingClient {
  readonly #parts: BookingClientParts;
  readonly #outcomes;
  /** By cell, and whether dry. */
  readonly #open = new Map<string, Batch>();
  readonly #unanswered = new Map<string, number>();

  constructor(parts: BookingClientParts) {
    this.#parts = parts;
    this.#outcomes = parts.metrics.counter('orca_relay_booking_total', 'Answers of cells to bookings', [
      'outcome',
      'dry_run',
    ]);
  }

  /** Never rejects. Beyond 1 024 unanswered asks of a cell: `unreachable` at once. */
  async book(cell: CellAddress, ask: BookingAsk, { dryRun = false } = {}): Promise<Booked> {
    const unanswered = this.#unanswered.get(cell.cellId) ?? 0;
    const full = unanswered >= MAX_ASKS_A_CELL;
    if (!full) this.#unanswered.set(cell.cellId, unanswered + 1);
    const booked = full ? UNREACHABLE : await this.#join(cell, ask, dryRun);
    if (!full) this.#answered(cell.cellId);
    this.#outcomes.inc({ outcome: booked.outcome, dry_run: String(dryRun) });
    return booked;
  }

  /** What was not sent stays unsent. */
  stop(): void {
    for (const batch of this.#open.values()) {
      this.#parts.clock.clearTimeout(batch.timer);
      for (const { answer } of batch.asks) answer(UNREACHABLE);
    }
    this.#open.clear();
  }

  #join(cell: CellAddress, ask: BookingAsk, dryRun: boolean): Promise<Booked> {
    const json = JSON.stringify(itemOf(ask));
    const bytes = Buffer.byteLength(json) + 1;
    const key = `${dryRun}:${cell.cellId}`;
    const open = this.#open.get(key);
    if (open !== undefined && open.bytes + bytes > LIMITS.maxBookingRequestBytes) this.#send(key, open);
    const batch = this.#open.get(key) ?? this.#begin(key, cell, dryRun);
    batch.bytes += bytes;
    const answered = new Promise<Booked>((answer) => batch.asks.push({ json, answer }));
    if (batch.asks.length === LIMITS.bookingItems) this.#send(key, batch);
    return answered;
  }

  #begin(key: string, cell: CellAddress, dryRun: boolean): Batch {
    const timer = this.#parts.clock.setTimeout(() => this.#send(key, batch), LIMITS.bookingBatchMs);
    const batch: Batch = { cell, dryRun, asks: [], bytes: Buffer.byteLength(this.#body(dryRun, [])), timer };
    this.#open.set(key, batch);
    return batch;
  }

  async #send(key: string, batch: Batch): Promise<void> {
    this.#open.delete(key);
    this.#parts.clock.clearTimeout(batch.timer);
    const json = this.#body(batch.dryRun, batch.asks);
    const reply = await callCell(this.#parts, batch.cell, { path: PATH, json, timeoutMs: LIMITS.bookingTimeoutMs });
    const results = readResults(reply, batch.asks.length);
    for (const [index, { answer }] of batch.asks.entries()) answer(results?.[index] ?? UNREACHABLE);
  }

  #body(dryRun: boolean, asks: readonly Waiting[]): string {
    const head = JSON.stringify({ v: 1, directorId: this.#parts.directorId, ...(dryRun ? { dryRun } : {}) });
    return `${head.slice(0, -1)},"items":[${asks.map(({ json }) => json).join(',')}]}`;
  }

  #answered(cellId: string): void {
    const left = (this.#unanswered.get(cellId) ?? 1) - 1;
    if (left > 0) this.#unanswered.set(cellId, left);
    else this.#unanswered.delete(cellId);
  }
}

const UNREACHABLE: Booked = { outcome: 'unreachable' };

function itemOf({ host, epoch, sticky }: BookingAsk): BookingItem {
  const { userId, relayHostId } = host;
  return { userId, relayHostId, epoch, ttlMs: LIMITS.bookingTtlMs, ...(sticky ? { sticky } : {}) };
}

/** Null for an answer that does not fit what was asked. */
function readResults(reply: unknown, asked: number): Booked[] | null {
  const read = reserveReply.safeParse(reply);
  if (!read.success || read.data.results.length !== asked) return null;
  return read.data.results.map(({ outcome, epoch }) => {
    if (!isOutcome(outcome)) return { outcome: 'unknown' };
    if (outcome !== 'seated-newer') return { outcome };
    return epoch === undefined ? { outcome: 'unknown' } : { outcome, epoch };
  });
}

function isOutcome(outcome: string): outcome is BookingOutcome {
  return (BOOKING_OUTCOMES as readonly string[]).includes(outcome);
}
