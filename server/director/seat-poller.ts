import { LIMITS } from '../../contract/limits.ts';
import { type Clock, every } from '../clock.ts';
import type { FeedCells } from '../config.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { CellRow } from '../sql-interface.ts';
import { FeedRead } from './feed-read.ts';
import type { FetchPage, PageReply } from './seat-feed-client.ts';
import { measureFeed } from './seat-feed-metrics.ts';
import type { FedCell, Refresh, RefreshOutcome, RefreshReport, SeatMap } from './seat-map.ts';

/**
 * Reads every cell's feed once a second into the map. A cell has one poll under way at most, so that a slow one holds up
 * nothing but itself; a poll takes as many pages as it needs, up to five, and 2 s.
 */

const SUMMARY_MS = 60_000;

/** One poll that ended. */
export interface PollEnd {
  cellId: string;
  outcome: RefreshOutcome;
}

export interface Round {
  /** The cells that were polled: the very list that every count over them must use. */
  cells: readonly CellRow[];
  /** How much later it came than an interval after the one before. */
  lateMs: number;
}

export interface SeatPollerOptions {
  map: SeatMap;
  /** The same array until the list was read anew; null before it was first read. */
  cells: () => readonly CellRow[] | null;
  feedCells: FeedCells;
  /** Whether this director books seats: cells give up waiting for directors that only look. */
  placementOn: boolean;
  fetchPage: FetchPage;
  log: Logger;
  metrics: Metrics;
  clock: Clock;
  /** What cells are held to. */
  peerTime: Clock;
  onRound?: (round: Round) => void;
  onPolled?: (end: PollEnd) => void;
}

export class SeatPoller {
  readonly #options: SeatPollerOptions;
  readonly #meters: ReturnType<typeof measureFeed>;
  readonly #polls = new Map<string, { abort: AbortController; done: Promise<void> }>();
  /** What each failing cell's last refresh ended in. */
  readonly #failing = new Map<string, string>();
  #list: readonly CellRow[] | null = null;
  #polled: readonly CellRow[] = [];
  #roundAt: number | null = null;
  #stopTimers: (() => void)[] = [];
  #stopped = false;

  constructor(options: SeatPollerOptions) {
    this.#options = options;
    this.#meters = measureFeed(options.metrics, options.map);
  }

  /** Polls at once, and every second from now on. */
  start(): void {
    const { clock } = this.#options;
    this.#stopTimers = [
      every(clock, LIMITS.feedPollMs, () => this.#round()),
      every(clock, SUMMARY_MS, () => this.#summarize()),
    ];
    this.#round();
  }

  /** The list was read anew. Never throws. */
  listed(): void {
    if (this.#roundAt === null || this.#stopped) return;
    this.#guarded(() => {
      if (this.#follow()) this.#pollAll();
    });
  }

  /** Gives up what is under way; resolves when nothing is. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const stop of this.#stopTimers) stop();
    const polls = [...this.#polls.values()];
    for (const { abort } of polls) abort.abort();
    await Promise.all(polls.map(({ done }) => done));
    this.#options.map.stop();
  }

  #round(): void {
    const { clock, onRound } = this.#options;
    const now = clock.now();
    const lateMs = this.#roundAt === null ? 0 : Math.max(0, now - this.#roundAt - LIMITS.feedPollMs);
    this.#roundAt = now;
    this.#guarded(() => {
      this.#meters.round(lateMs);
      this.#follow();
      onRound?.({ cells: this.#polled, lateMs });
      this.#pollAll();
    });
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#options.log.error({ event: 'orca_relay_shadow_seat_round_failed', error });
    }
  }

  /** @returns false when the list is the one that was followed last. */
  #follow(): boolean {
    const { cells, feedCells, map } = this.#options;
    const list = cells();
    if (list === null || list === this.#list) return false;
    const polled = list.filter(({ cell_id }) => feedCells === 'all' || feedCells.has(cell_id));
    map.setCells(polled.map(fedCell));
    [this.#list, this.#polled] = [list, polled];
    const named = new Set(this.#polled.map(({ cell_id }) => cell_id));
    for (const [cellId, { abort }] of this.#polls) if (!named.has(cellId)) abort.abort();
    for (const cellId of this.#failing.keys()) if (!named.has(cellId)) this.#failing.delete(cellId);
    return true;
  }

  #pollAll(): void {
    for (const cell of this.#polled) {
      if (this.#polls.has(cell.cell_id)) continue;
      const refresh = this.#options.map.begin(cell.cell_id);
      if (refresh === null) continue;
      const abort = new AbortController();
      const done = this.#poll(cell, refresh, abort).finally(() => this.#polls.delete(cell.cell_id));
      this.#polls.set(cell.cell_id, { abort, done });
    }
  }

  async #poll(cell: CellRow, refresh: Refresh, abort: AbortController): Promise<void> {
    const { clock, log, map, onPolled } = this.#options;
    try {
      const startedAt = clock.now();
      const outcome = await this.#withinTime(abort, (signal) => this.#read(cell, refresh, signal));
      if (outcome === 'given-up') return;
      this.#meters.polled(outcome, clock.now() - startedAt);
      const report = map.apply(refresh, outcome);
      if (report === null) return;
      this.#say(cell.cell_id, outcome, report);
      onPolled?.({ cellId: cell.cell_id, outcome });
    } catch (error) {
      log.error({ event: 'orca_relay_shadow_seat_round_failed', cellId: cell.cell_id, error });
    }
  }

  /** All pages of one poll. What was asked for and never answers is left behind: see {@link #withinTime}. */
  async #read(cell: CellRow, { cellId, cursor: from }: Refresh, signal: AbortSignal): Promise<RefreshOutcome> {
    const { fetchPage, placementOn } = this.#options;
    const read = new FeedRead(cellId, from);
    let cursor = from;
    for (;;) {
      const reply: PageReply = await fetchPage({ cellId, url: cell.url }, { cursor, reserver: placementOn }, signal);
      if (!reply.ok) return reply;
      const next = read.take(reply.page);
      if (next.step === 'failed') return { ok: false, failure: next.failure };
      if (next.step === 'complete') return { ok: true, read: next.read };
      cursor = next.cursor;
    }
  }

  async #withinTime(
    abort: AbortController,
    work: (signal: AbortSignal) => Promise<RefreshOutcome>,
  ): Promise<RefreshOutcome | 'given-up'> {
    const { peerTime } = this.#options;
    const { signal } = abort;
    let over: (end: RefreshOutcome | 'given-up') => void = () => undefined;
    const ended = new Promise<RefreshOutcome | 'given-up'>((resolve) => {
      over = resolve;
    });
    const timer = peerTime.setTimeout(() => {
      over({ ok: false, failure: 'timeout' });
      abort.abort();
    }, LIMITS.feedTimeoutMs);
    signal.addEventListener('abort', () => over('given-up'), { once: true });
    try {
      return await Promise.race([ended, work(signal)]);
    } finally {
      peerTime.clearTimeout(timer);
    }
  }

  /** One line for every refresh that fails (F10), and one for the first that succeeds again. */
  #say(cellId: string, outcome: RefreshOutcome, { action, entries, ageMs }: RefreshReport): void {
    const { log } = this.#options;
    this.#meters.refreshed(action);
    const ended = outcome.ok ? 'ok' : outcome.failure;
    const before = this.#failing.get(cellId);
    if (outcome.ok) this.#failing.delete(cellId);
    else this.#failing.set(cellId, ended);
    if (outcome.ok && before === undefined) return;
    const age = ageMs === null ? null : Math.round(ageMs);
    const line = {
      event: 'orca_relay_owner_map_refresh',
      cellId,
      outcome: ended,
      action,
      entries,
      ageMs: age,
    } as const;
    // a cell that was never heard may yet be starting; the map's completeness is watched for the rest
    if (ended === before || outcome.ok || ageMs === null) log.info(line);
    else log.warn(line);
  }

  #summarize(): void {
    const { log, map } = this.#options;
    const cells = map.cells();
    const count = (status: string) => cells.filter((cell) => cell.status === status).length;
    log.info({
      event: 'orca_relay_shadow_seat_summary',
      complete: map.complete(),
      cells: cells.length,
      live: count('live'),
      pending: count('pending'),
      noFeed: count('no-feed'),
      unverifiable: count('unverifiable'),
      failures: Object.fromEntries(map.failures()),
      ...map.sizes(),
    });
  }
}

/** The map waits for a cell that lives and carries hosts; one whose process is being replaced may be away. */
function fedCell(row: CellRow): FedCell {
  const heard = row.heard_age_ms !== null && row.heard_age_ms <= LIMITS.heartbeatTtlMs;
  return {
    cellId: row.cell_id,
    incarnation: row.incarnation,
    required: row.ready === true && heard && row.capacity_units > 0 && !row.rolling,
  };
}
