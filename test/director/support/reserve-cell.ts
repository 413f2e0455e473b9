import { type DemoteRequest, demoteRequest, type ReserveRequest, reserveRequest } from '../../../contract/booking.ts';
import type { FeedCursor, FeedPage } from '../../../contract/seat-feed.ts';
import { Book } from '../../../server/cell/book.ts';
import { Units } from '../../../server/cell/units.ts';
import type { HostName } from '../../../server/director/seat-view.ts';
import type { AdmitMode, CellRow } from '../../../server/sql-interface.ts';
import { FeedCell, rowOf } from './feed-cell.ts';

/** The log and the book of a reserve cell, without the sockets around them. */
export class ReserveCell extends FeedCell {
  mode: AdmitMode = 'reserve';
  draining = false;
  intakePerSec = 5;
  /** Neither polls nor requests get an answer. */
  down = false;
  /** Requests are carried out, and their answers lost. */
  deaf = false;
  readonly asked: ReserveRequest[] = [];
  readonly demoted: DemoteRequest[] = [];
  readonly ceiling: number;
  row: CellRow;
  #book: Book;
  #units = new Units(null);
  #seated = new Map<string, number>();
  readonly #left = new Map<string, number>();

  constructor(cellId: string, { ceiling = 100, ...row }: Partial<CellRow> & { ceiling?: number } = {}) {
    super(cellId);
    this.ceiling = ceiling;
    this.row = rowOf(cellId, { admit_mode: 'reserve', incarnation: this.incarnation, ...row });
    this.#book = this.#newBook();
  }

  override restart(): void {
    super.restart();
    this.#seated = new Map();
    this.#left.clear();
    this.#units = new Units(null);
    this.#book = this.#newBook();
  }

  override join(host: HostName, epoch: number, more: { generation?: number; reservedBy?: string } = {}): void {
    const booking = this.#book.find(host, epoch);
    this.#book.seated(host, epoch, booking ?? null);
    this.#seated.set(host.relayHostId, epoch);
    super.join(host, epoch, { ...(booking ? { reservedBy: booking.reservedBy } : {}), ...more });
  }

  override leave(host: HostName, closeCode = 1000): void {
    this.#seated.delete(host.relayHostId);
    super.leave(host, closeCode);
  }

  bookedEpoch(host: HostName): number {
    return this.#book.epochOf(host);
  }

  override page(cursor: FeedCursor | null): FeedPage {
    const page = super.page(cursor);
    const units = this.#seated.size + this.#book.size;
    const intake = { perSec: this.intakePerSec, burst: 20, tokens: this.#book.intake.tokens };
    const counts = { ...page.counts, units, ceiling: this.ceiling, bookings: this.#book.size };
    return { ...page, counts, intake, draining: this.draining, admitModeRaw: this.mode, ...this.head };
  }

  /** What a request gets; rejects as a broken connection does. */
  async post(path: string, json: string): Promise<unknown> {
    if (this.down) throw new Error('no route to the cell');
    const reply = path.endsWith('reserve') ? this.#reserve(json) : this.#demote(json);
    if (this.deaf) throw new Error('the connection broke');
    return reply;
  }

  #reserve(json: string) {
    const request = reserveRequest.parse(JSON.parse(json));
    this.asked.push(request);
    return { v: 1, results: this.#book.take(request) };
  }

  #demote(json: string) {
    const request = demoteRequest.parse(JSON.parse(json));
    this.demoted.push(request);
    const seated = this.#seated.get(request.relayHostId) === request.epoch;
    this.#left.set(request.relayHostId, Math.max(request.epoch + 1, this.#left.get(request.relayHostId) ?? 0));
    if (seated) this.leave(request, 4409);
    return { v: 1, outcome: seated ? 'demoted' : 'not-seated' };
  }

  #newBook(): Book {
    return new Book({
      clock: this.clock,
      units: this.#units,
      ceiling: this.ceiling,
      mode: () => this.mode,
      draining: () => this.draining,
      intakePerSec: () => this.intakePerSec,
      seatedEpoch: (host) => this.#seated.get(host.relayHostId) ?? 0,
      leftEpoch: (host) => this.#left.get(host.relayHostId) ?? 0,
      booked: ({ host, epoch, reservedBy }) => this.reserve(host, epoch, reservedBy),
      ended: () => undefined,
    });
  }
}
