import type { EventData, EventName, GapReason, WithheldVerdict } from '../../contract/events.ts';
import type { ResyncReason } from '../change-stream.ts';
import type { Clock } from '../clock.ts';
import type { Database } from '../database.ts';
import type { EventStream, StreamEnd, StreamedEvent } from '../event-stream.ts';
import { hostDigest, type Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { Change, ChangeCursor, ChangesPage } from '../sql-interface.ts';
import { changeWords } from './change-words.ts';
import type { WithheldEvent } from './dead-cell-verdicts.ts';
import { EventArms } from './event-arms.ts';
import { advance, catchUp, type ReadPosition, readEventId, writeEventId } from './event-position.ts';
import type { CellEvent, PageEvent } from './seat-map.ts';
import type { HostName } from './seat-view.ts';

/**
 * Tells readers what happens (`contract/events.ts`): every change of state once, from the one stream in which the director
 * reads the log, and what the cells' feeds say. A reader that was away is first brought up to that stream from the log.
 */

/** More readers than this are refused. */
export const MAX_READERS = 32;
const PAGE_ROWS = 500;
const READ_TIMEOUT_MS = 3_000;
/** While a reader cannot be brought further: the database is away, or the reader has yet to take what it was sent. */
const RETRY_MS = 1_000;
const TAKING_MS = 50;

export class EventFeed {
  readonly #db: Pick<Database, 'call'>;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #meters: Meters;
  readonly #withheld: () => readonly WithheldVerdict[];
  readonly #arms = new EventArms();
  readonly #readers = new Set<EventStream>();
  /** Those that have all that the director's own stream has brought. */
  readonly #live = new Set<EventStream>();
  readonly #bringing = new Set<Promise<void>>();
  /** One page is read at a time, for whomever: hosts that ask for a place need the connections more. */
  #turn: Promise<unknown> = Promise.resolve();
  #failing = false;
  #position: ChangeCursor | null = null;
  #read: Change[] = [];
  #resync: ResyncReason | null = null;

  /** @param withheld verdicts that are withheld now: for readers that come later than it was told */
  constructor(
    db: Pick<Database, 'call'>,
    log: Logger,
    metrics: Metrics,
    clock: Clock,
    withheld: () => readonly WithheldVerdict[],
  ) {
    this.#withheld = withheld;
    this.#db = db;
    this.#log = log;
    this.#clock = clock;
    this.#meters = measure(metrics, () => this.#readers.size);
  }

  get full(): boolean {
    return this.#readers.size >= MAX_READERS;
  }

  refused(reason: 'full' | 'loopback_only' | 'unauthorized'): void {
    this.#meters.refused.inc({ reason });
  }

  /** @param lastEventId of the last event that the reader has, if it was here before */
  watch(stream: EventStream, lastEventId: string | undefined): void {
    this.#readers.add(stream);
    const from = lastEventId === undefined ? null : readEventId(lastEventId);
    const hello = { resumed: from !== null, cells: this.#arms.cells(), withheld: [...this.#withheld()] };
    this.#tell(stream, 'hello', hello, from === null ? this.#position : null);
    if (lastEventId === undefined) this.#live.add(stream);
    else if (from === null) this.#startAnew(stream, 'unknown_id');
    else {
      const done = this.#bringUp(stream, from)
        .catch((error: unknown) => {
          this.#log.error({ event: 'orca_relay_handler_failed', where: 'events', error });
          stream.stop();
        })
        .finally(() => this.#bringing.delete(done));
      this.#bringing.add(done);
    }
  }

  leave(stream: EventStream, reason: StreamEnd): void {
    this.#readers.delete(stream);
    this.#live.delete(stream);
    this.#meters.ended.inc({ reason });
    if (reason === 'slow') this.#log.warn({ event: 'orca_relay_event_reader_dropped', reason });
  }

  /** A change of the read that is under way. */
  changed(change: Change): void {
    this.#read.push(change);
  }

  /** The director's own stream starts anew: what lies between is lost to it. */
  resynced(reason: ResyncReason): void {
    this.#resync = reason;
    this.#read = [];
  }

  /** A read of the log is over. */
  came(cursor: ChangeCursor): void {
    let position = this.#position;
    const changes = this.#read;
    const resync = this.#resync;
    this.#position = cursor;
    this.#read = [];
    this.#resync = null;
    if (resync !== null || position === null) {
      // Also those that came before the first read: it starts at the head, which may be later than they were let in.
      for (const stream of [...this.#live]) this.#startAnew(stream, resync ?? 'start');
      return;
    }
    for (const [index, change] of changes.entries()) {
      position = index === changes.length - 1 ? cursor : advance(position, change.id);
      this.#tellAll(this.#live, 'change', toldChange(change), position);
    }
  }

  cell(event: CellEvent): void {
    this.#arms.note(event);
    const { type, cellId } = event;
    const at = this.#at();
    if (type === 'unavailable') {
      const { reason, retainedForMs } = event;
      const lastGoodAt = event.lastGoodAt === null ? null : Math.round(event.lastGoodAt);
      this.#tellAll(this.#readers, 'cell_unavailable', { cellId, reason, lastGoodAt, retainedForMs, at });
    } else this.#tellAll(this.#readers, type === 'open' ? 'cell_open' : 'cell_gap', { cellId, at });
  }

  page(cellId: string, { joins, leaves }: PageEvent): void {
    // All that sits on a cell is news to a director that could not follow it; none of it happened just now.
    if (this.#arms.isFirstPage(cellId)) return;
    const at = this.#at();
    for (const { epoch, ...host } of joins) {
      this.#tellAll(this.#readers, 'host_joined', { cellId, host: digestOf(host), epoch, at });
    }
    for (const { epoch, closeCode, ...host } of leaves) {
      const how = closeCode === undefined ? {} : { closeCode };
      this.#tellAll(this.#readers, 'host_left', { cellId, host: digestOf(host), epoch, ...how, at });
    }
  }

  verdict(event: WithheldEvent): void {
    const told = { ...event.withheld, at: this.#at() };
    if (event.type === 'withheld') this.#tellAll(this.#readers, 'verdict_withheld', told);
    else this.#tellAll(this.#readers, 'verdict_given', { ...told, verdict: event.verdict });
  }

  async stop(): Promise<void> {
    for (const stream of [...this.#readers]) stream.stop();
    await Promise.all(this.#bringing);
  }

  #startAnew(stream: EventStream, reason: GapReason): void {
    this.#meters.gaps.inc({ reason });
    this.#tell(stream, 'gap', { reason }, this.#position);
    this.#live.add(stream);
  }

  /** From the log, page by page, until the reader has what the director's own stream has brought. */
  async #bringUp(stream: EventStream, { cursor: from, exact }: ReadPosition): Promise<void> {
    let cursor = from;
    if (!exact) {
      this.#meters.gaps.inc({ reason: 'gaps' });
      this.#tell(stream, 'gap', { reason: 'gaps' }, null);
    }
    while (!stream.over) {
      const before = this.#position;
      const page = before === null ? null : await this.#page(stream, cursor);
      const now = this.#position;
      if (stream.over) return;
      if (page?.resync) return this.#startAnew(stream, page.resync);
      // After a failover the director's own stream takes a moment to notice. A reader that comes from another director may
      // be ahead of it, and would be told again what it has.
      const behind = now !== null && (now.timeline !== page?.cursor.timeline || now.max_id < cursor.max_id);
      if (before === null || now === null || page === null || behind) {
        await this.#wait(RETRY_MS);
        continue;
      }
      const next = catchUp(page, before, now);
      for (const change of next.told) {
        cursor = advance(cursor, change.id);
        this.#tell(stream, 'change', toldChange(change), cursor);
      }
      cursor = next.cursor;
      if (next.live) {
        this.#live.add(stream);
        return;
      }
      while (!stream.over && !stream.taken()) await this.#wait(TAKING_MS);
    }
  }

  #page(stream: EventStream, cursor: ChangeCursor): Promise<ChangesPage | null> {
    const page = this.#turn.then(() => (stream.over ? null : this.#readPage(cursor)));
    this.#turn = page;
    return page;
  }

  async #readPage(cursor: ChangeCursor): Promise<ChangesPage | null> {
    try {
      const asked = { cursor, max_rows: PAGE_ROWS };
      const page = await this.#db.call('changes_since', asked, { timeoutMs: READ_TIMEOUT_MS });
      this.#failing = false;
      return page;
    } catch (error) {
      if (!this.#failing) this.#log.warn({ event: 'orca_relay_event_resume_delayed', error });
      this.#failing = true;
      return null;
    }
  }

  #tellAll<N extends EventName>(
    streams: ReadonlySet<EventStream>,
    event: N,
    data: EventData<N>,
    at: ChangeCursor | null = null,
  ): void {
    if (streams.size === 0) return;
    const told = toldEvent(event, data, at);
    for (const stream of [...streams]) stream.push(told);
  }

  #tell<N extends EventName>(stream: EventStream, event: N, data: EventData<N>, at: ChangeCursor | null): void {
    stream.push(toldEvent(event, data, at));
  }

  #at(): number {
    return Math.round(this.#clock.wallNow());
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.setTimeout(resolve, ms);
    });
  }
}

function toldChange(change: Change): EventData<'change'> {
  const { id, kind, rule, epoch, at, user_id, relay_host_id } = change;
  const host = user_id === null || relay_host_id === null ? null : hostDigest(user_id, relay_host_id);
  return { id, kind, words: changeWords(change), host, from: change.from_cell, to: change.to_cell, epoch, rule, at };
}

function toldEvent<N extends EventName>(event: N, data: EventData<N>, at: ChangeCursor | null): StreamedEvent {
  return { event, data: JSON.stringify(data), ...(at === null ? {} : { id: writeEventId(at) }) };
}

const digestOf = ({ userId, relayHostId }: HostName) => hostDigest(userId, relayHostId);

type Meters = ReturnType<typeof measure>;

function measure(metrics: Metrics, readers: () => number) {
  metrics.gauge('orca_relay_event_readers', 'Readers of the event stream', [], readers);
  return {
    ended: metrics.counter('orca_relay_event_readers_ended_total', 'Readers that left, and why', ['reason']),
    refused: metrics.counter('orca_relay_event_readers_refused_total', 'Readers refused', ['reason']),
    gaps: metrics.counter('orca_relay_event_gaps_total', 'Gaps in the changes that a reader was told of', ['reason']),
  };
}
