import { type FeedCursor, type FeedPage, feedPage } from '../../../contract/seat-feed.ts';
import { type SeatedSession, SeatLog } from '../../../server/cell/seat-log.ts';
import type { HostName } from '../../../server/director/seat-view.ts';
import type { CellRow } from '../../../server/sql-interface.ts';
import { HandClock } from '../../support/hand-clock.ts';

/** The log of a cell as its feed tells it, without the cell around it. */
export class FeedCell {
  readonly cellId: string;
  /** The cell's own: no director has its time. */
  readonly clock = new HandClock();
  /** Members of the page's head beside what the log says. */
  head: Partial<FeedPage> = {};
  #process = 0;
  #log: SeatLog;
  #sessions = new Map<string, SeatedSession>();

  constructor(cellId: string) {
    this.cellId = cellId;
    this.#log = this.#newLog();
  }

  get incarnation(): string {
    return `${this.cellId}-${this.#process}`;
  }

  /** Another process, with nobody seated. */
  restart(): void {
    this.#log = this.#newLog();
    this.#sessions = new Map();
  }

  join(host: HostName, epoch: number, more: { generation?: number; reservedBy?: string } = {}): void {
    const { generation = 1, ...reserved } = more;
    const session: SeatedSession = { host, epoch, generation, state: 'active' };
    this.#sessions.set(host.relayHostId, session);
    this.#log.joined(session, reserved);
  }

  leave(host: HostName, closeCode = 1000): void {
    const session = this.#sessions.get(host.relayHostId);
    if (session !== undefined) this.#log.left(session, closeCode);
    this.#sessions.delete(host.relayHostId);
  }

  reserve(host: HostName, epoch: number, reservedBy = 'director-1'): void {
    this.#log.reserved(host, epoch, reservedBy);
  }

  page(cursor: FeedCursor | null): FeedPage {
    const counts = { controls: this.#log.seats, seats: this.#log.seats, units: this.#log.seats, ceiling: 900 };
    return feedPage.parse({
      v: 1,
      cellId: this.cellId,
      incarnation: this.incarnation,
      at: Math.floor(this.clock.wallNow()),
      draining: false,
      counts,
      ...this.#log.page(cursor),
      ...this.head,
    });
  }

  #newLog(): SeatLog {
    this.#process += 1;
    return new SeatLog(this.clock, this.incarnation);
  }
}

/** As the list of cells has it: live, and carrying hosts. */
export function rowOf(cellId: string, more: Partial<CellRow> = {}): CellRow {
  return {
    cell_id: cellId,
    url: `https://${cellId}.example.test`,
    region: 'us-central1',
    admission: 'general',
    admit_mode: 'db',
    capacity_units: 900,
    connection_hard_cap: null,
    connection_unobserved_bound: null,
    incarnation: null,
    started_at: 1,
    ready: true,
    heard_age_ms: 1_000,
    enforced_units: 0,
    draining: false,
    rolling: false,
    ...more,
  };
}
