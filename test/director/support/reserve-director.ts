import type { ReservePlacement } from '../../../server/config.ts';
import { BookingClient } from '../../../server/director/booking-client.ts';
import { BookingEstimates } from '../../../server/director/booking-estimates.ts';
import type { CellPost } from '../../../server/director/cell-post.ts';
import { DeadCellVerdicts } from '../../../server/director/dead-cell-verdicts.ts';
import { Demotions } from '../../../server/director/demotions.ts';
import { FeedRead } from '../../../server/director/feed-read.ts';
import { Pace } from '../../../server/director/pace.ts';
import { PendingMoves } from '../../../server/director/pending-moves.ts';
import { PlacementMemory } from '../../../server/director/placement-memory.ts';
import { type Planned, type ReadRow, ReserveAssign } from '../../../server/director/reserve-assign.ts';
import { type RefreshOutcome, SeatMap } from '../../../server/director/seat-map.ts';
import type { HostName } from '../../../server/director/seat-view.ts';
import { Supersede } from '../../../server/director/supersede.ts';
import { createLogger, type Logger } from '../../../server/log.ts';
import { createMetrics } from '../../../server/metrics.ts';
import { HandClock } from '../../support/hand-clock.ts';
import type { ReserveCell } from './reserve-cell.ts';

export interface ReserveDirectorOptions {
  log?: Logger;
  mode?: ReservePlacement;
  directorId?: string;
  random?: () => number;
  retentionMs?: number;
  /** Of Postgres, for one that is asked; else `row`. */
  readRow?: ReadRow;
}

/** The reserve plan of a director with its map, in front of the books and logs of cells; a request is a call. */
export class ReserveDirector {
  readonly clock = new HandClock();
  readonly metrics = createMetrics();
  readonly cells: readonly ReserveCell[];
  readonly map: SeatMap;
  readonly pending = new PendingMoves(this.clock);
  readonly memory: PlacementMemory;
  readonly assign: ReserveAssign;
  readonly supersede: Supersede;
  readonly demotions: Demotions;
  readonly verdicts: DeadCellVerdicts;
  /** Hosts whose rows were read. */
  readonly rowReads: { host: HostName; timeoutMs: number }[] = [];
  row: Awaited<ReturnType<ReadRow>> = { row: null };
  poolWaiters = 0;

  constructor(cells: readonly ReserveCell[], options: ReserveDirectorOptions = {}) {
    const { mode = 'on', directorId = 'director-1', random = Math.random, retentionMs = 60_000 } = options;
    const { clock, metrics } = this;
    const { log = createLogger({ role: 'director', level: 'silent' }) } = options;
    this.verdicts = new DeadCellVerdicts(log, metrics, clock);
    this.cells = cells;
    this.map = new SeatMap(clock, { retentionMs });
    this.memory = new PlacementMemory({ clock, mode, pending: this.pending, seats: this.map });
    const fleet = this.fleet();
    this.demotions = new Demotions({ fleet, log, metrics, peerTime: clock, post: this.post });
    this.supersede = new Supersede(fleet, this.map, this.demotions);
    this.assign = new ReserveAssign({
      client: new BookingClient({ clock, peerTime: clock, metrics, post: this.post, directorId }),
      clock,
      estimates: new BookingEstimates(clock, this.map),
      fleet,
      log,
      memory: this.memory,
      metrics,
      mode,
      pace: new Pace(clock),
      poolWaiters: () => this.poolWaiters,
      random,
      readRow: async (host, timeoutMs, signal) => {
        this.rowReads.push({ host, timeoutMs });
        return options.readRow?.(host, timeoutMs, signal) ?? this.row;
      },
      region: 'us-central1',
      seats: this.map,
      supersede: this.supersede,
      verdicts: this.verdicts,
    });
    this.listed();
  }

  fleet() {
    const { cells } = this;
    return {
      get cells() {
        return cells.map(({ row }) => row);
      },
    };
  }

  readonly post: CellPost = async (cell, path, json) => {
    const found = this.cells.find(({ cellId }) => cellId === cell.cellId);
    if (found === undefined) throw new Error(`no cell ${cell.cellId}`);
    return found.post(path, json);
  };

  /** The list of cells was read. */
  listed(): void {
    this.map.setCells(
      this.cells.map(({ cellId, row }) => ({ cellId, incarnation: row.incarnation, required: row.ready === true })),
    );
  }

  /** Reads the feeds of these cells, or of all. */
  poll(cells: readonly ReserveCell[] = this.cells): void {
    for (const cell of cells) {
      const refresh = this.map.begin(cell.cellId);
      if (refresh !== null) this.map.apply(refresh, read(cell, refresh.cursor));
    }
  }

  /** Time passes here and on the cells; the feeds are read once a second. */
  pass(ms: number): void {
    for (let left = ms; left > 0; left -= 1_000) {
      const step = Math.min(1_000, left);
      this.clock.advance(step);
      for (const cell of this.cells) cell.clock.advance(step);
      if (step === 1_000) this.poll();
    }
  }

  /** The polls of these cells fail once a second for so long; all others are answered. */
  fails(silent: readonly string[], ms: number): void {
    const rows = this.cells.map(({ row }) => row);
    for (let since = 0; since <= ms; since += 1_000) {
      if (since > 0) this.clock.advance(1_000);
      this.verdicts.round(rows, 0);
      for (const cell of this.cells) {
        const fails = silent.includes(cell.cellId);
        const outcome: RefreshOutcome = fails ? { ok: false, failure: 'timeout' } : read(cell, null);
        this.verdicts.polled(cell.cellId, outcome);
        const refresh = this.map.begin(cell.cellId);
        if (refresh !== null) this.map.apply(refresh, fails ? outcome : read(cell, refresh.cursor));
      }
    }
  }

  /** With intake at hand: a director that has just started has none. */
  warm(): this {
    this.poll();
    this.pass(10_000);
    return this;
  }

  /** What comes of a host's ask; time passes while its cells are asked. */
  async ask(host: HostName, region: string | null = null): Promise<Planned> {
    return this.#during(this.assign.plan({ host, region, signal: new AbortController().signal }));
  }

  async bookInstead(host: HostName, region: string | null = null) {
    return this.#during(this.assign.bookInstead({ host, region, signal: new AbortController().signal }));
  }

  /** Lets what was sent and not waited for arrive. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  }

  async #during<T>(work: Promise<T>): Promise<T> {
    let done = false;
    const ended = work.finally(() => {
      done = true;
    });
    for (let ms = 0; !done && ms < 10_000; ms++) {
      await this.settle();
      if (!done) this.clock.advance(1);
    }
    return ended;
  }
}

function read(cell: ReserveCell, cursor: Parameters<ReserveCell['page']>[0]): RefreshOutcome {
  if (cell.down) return { ok: false, failure: 'unreachable' };
  const reading = new FeedRead(cell.cellId, cursor);
  for (let at = cursor; ; ) {
    const step = reading.take(cell.page(at));
    if (step.step === 'failed') return { ok: false, failure: step.failure };
    if (step.step === 'complete') return { ok: true, read: step.read };
    at = step.cursor;
  }
}
