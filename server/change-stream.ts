import { type AgedCursor, ageGaps, MAX_GAPS } from './change-cursor.ts';
import { type Clock, systemClock, type Timer } from './clock.ts';
import type { Database } from './database.ts';
import { type DoorbellState, openDoorbell } from './doorbell.ts';
import type { Logger } from './log.ts';
import type { Metrics } from './metrics.ts';
import type { Change, ChangeCursor, ChangesPage } from './sql-interface.ts';

/**
 * Reads `relay.change` from a cursor, each change once, whether or not anybody rings (02, change log; P9). Polling is
 * what the stream rests on; the doorbell only makes it look sooner. One read is under way at a time, however often it rings.
 */

const MAX_ROWS = 500;
const READ_TIMEOUT_MS = 3_000;
/** While the database is away, look no more often than this. */
const FAILURE_PAUSE_MS = 1_000;

/** Why the reader's own picture is to be read anew; `gaps`: too many holes to go on from the cursor. */
export type ResyncReason = NonNullable<ChangesPage['resync']> | 'gaps';

export interface ChangeStreamOptions {
  databaseUrl: string;
  db: Pick<Database, 'call' | 'query'>;
  /** Only what concerns this cell; absent: everything. */
  cellId?: string;
  pollMs: number;
  /** In the order of ids, except that an id whose transaction was late comes after younger ones. */
  onChange: (change: Change) => void | Promise<void>;
  /** Called before any change that follows the cursor, at the start too. When it throws, it is called again. */
  onResync: (reason: ResyncReason) => void | Promise<void>;
  /** After the changes of each read: everything up to this cursor was brought, its gaps left out. */
  onRead?: (cursor: ChangeCursor) => void;
  log: Logger;
  metrics: Metrics;
  clock?: Clock;
}

export interface ChangeStream {
  /** Resolves once the first read was taken in; stays pending while the database is away. */
  readonly ready: Promise<void>;
  doorbell(): DoorbellState;
  /** Resolves when nothing is under way any more. */
  stop(): Promise<void>;
}

export function openChangeStream(options: ChangeStreamOptions): ChangeStream {
  const reader = new Reader(options);
  const { cellId, databaseUrl, db, log, clock } = options;
  const doorbell = openDoorbell({
    databaseUrl,
    db,
    applicationName: `orca-relay/doorbell/${cellId ?? 'director'}`,
    onRing: () => reader.ring(),
    onState: (state) => reader.noteDoorbell(state),
    log,
    ...(clock ? { clock } : {}),
  });
  const done = reader.run();
  return {
    ready: reader.ready,
    doorbell: () => doorbell.state(),
    async stop() {
      reader.stop();
      await Promise.all([doorbell.stop(), done]);
    },
  };
}

type Position = Omit<AgedCursor, 'dropped'>;
type ReadOutcome = 'more' | 'caught-up' | 'failed';

class Reader {
  readonly ready: Promise<void>;
  readonly #options: ChangeStreamOptions;
  readonly #clock: Clock;
  readonly #meters: Meters;
  #position: Position | null = null;
  #resync: ResyncReason | null = null;
  #rung = false;
  #stopped = false;
  #wake: (() => void) | null = null;
  #markReady: () => void = () => undefined;
  #failures = 0;

  constructor(options: ChangeStreamOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#meters = meters(options.metrics, options.cellId === undefined ? 'director' : 'cell');
    this.ready = new Promise((resolve) => {
      this.#markReady = resolve;
    });
  }

  ring(): void {
    this.#meters.rings();
    this.#rung = true;
    this.#wake?.();
  }

  noteDoorbell(state: DoorbellState): void {
    this.#meters.doorbell(state);
    this.#options.log.info({ event: 'orca_relay_doorbell_state', state });
  }

  stop(): void {
    this.#stopped = true;
    this.#wake?.();
  }

  async run(): Promise<void> {
    while (!this.#stopped) {
      this.#rung = false;
      const outcome = await this.#read();
      if (outcome !== 'more') await this.#pause(this.#pauseMs(outcome));
    }
  }

  #pauseMs(outcome: ReadOutcome): number {
    const { pollMs } = this.#options;
    return outcome === 'failed' ? Math.max(pollMs, FAILURE_PAUSE_MS) : pollMs;
  }

  async #read(): Promise<ReadOutcome> {
    const { cellId, db, log } = this.#options;
    try {
      const page = await db.call(
        'changes_since',
        { cursor: this.#position?.cursor ?? null, cell_id: cellId ?? null, max_rows: MAX_ROWS },
        { timeoutMs: READ_TIMEOUT_MS },
      );
      if (this.#stopped) return 'caught-up';
      await this.#take(page);
      if (this.#failures > 0) log.info({ event: 'orca_relay_change_stream_recovered', failures: this.#failures });
      this.#failures = 0;
      this.#meters.read();
      this.#markReady();
      return page.more ? 'more' : 'caught-up';
    } catch (error) {
      this.#failures += 1;
      this.#meters.failed();
      if (this.#failures === 1) log.warn({ event: 'orca_relay_change_stream_failed', error });
      return 'failed';
    }
  }

  async #take(page: ChangesPage): Promise<void> {
    const reason = this.#resync ?? page.resync;
    if (reason) {
      // Remembered until it worked: a cursor taken over without the picture it belongs to would hide what is missing.
      this.#resync = reason;
      await this.#options.onResync(reason);
      this.#resync = null;
      this.#meters.resynced(reason);
      this.#options.log.info({ event: 'orca_relay_change_stream_resync', reason });
    }
    const aged = ageGaps(page.cursor, reason ? new Map() : (this.#position?.ages ?? new Map()), this.#clock.now());
    for (const change of page.changes) await this.#deliver(change);
    this.#meters.gaps(aged.cursor.gaps.length, aged.dropped);
    this.#position = aged;
    this.#options.onRead?.(aged.cursor);
    if (aged.cursor.gaps.length > MAX_GAPS) {
      this.#position = null;
      this.#resync = 'gaps';
    }
  }

  /** A change that its reader cannot digest is said and passed over: the ones behind it matter as much. */
  async #deliver(change: Change): Promise<void> {
    this.#meters.change(change.kind);
    try {
      await this.#options.onChange(change);
    } catch (error) {
      this.#meters.undigested();
      this.#options.log.error({ event: 'orca_relay_change_undigested', kind: change.kind, id: change.id, error });
    }
  }

  #pause(ms: number): Promise<void> {
    if (this.#stopped || this.#rung) return Promise.resolve();
    return new Promise((resolve) => {
      let timer: Timer | undefined;
      const finish = () => {
        this.#clock.clearTimeout(timer);
        this.#wake = null;
        resolve();
      };
      timer = this.#clock.setTimeout(finish, ms);
      this.#wake = finish;
    });
  }
}

type Meters = ReturnType<typeof meters>;

function meters(metrics: Metrics, reader: 'director' | 'cell') {
  const changes = metrics.counter('orca_relay_changes_total', 'Changes read from the log', ['reader', 'kind']);
  const undigested = metrics.counter('orca_relay_changes_undigested_total', 'Changes whose reader failed', ['reader']);
  const failures = metrics.counter('orca_relay_change_read_failures_total', 'Reads of the log that failed', ['reader']);
  const resyncs = metrics.counter('orca_relay_change_resyncs_total', 'Starts anew', ['reader', 'reason']);
  const dropped = metrics.counter('orca_relay_change_gaps_dropped_total', 'Gaps that nothing filled', ['reader']);
  const open = metrics.gauge('orca_relay_change_gaps', 'Gaps that may yet be filled', ['reader']);
  const lastRead = metrics.gauge(
    'orca_relay_change_last_read_timestamp_seconds',
    'When the log was last read to its end',
    ['reader'],
  );
  const rings = metrics.counter('orca_relay_doorbell_rings_total', 'Times the doorbell rang', ['reader']);
  const state = metrics.gauge('orca_relay_doorbell_state', '1 for the state the doorbell is in', ['reader', 'state']);
  const states: readonly DoorbellState[] = ['connecting', 'testing', 'hearing', 'deaf', 'waiting', 'stopped'];
  return {
    change: (kind: string) => changes.inc({ reader, kind }),
    undigested: () => undigested.inc({ reader }),
    failed: () => failures.inc({ reader }),
    resynced: (reason: ResyncReason) => resyncs.inc({ reader, reason }),
    gaps: (now: number, lost: number) => {
      open.set({ reader }, now);
      if (lost > 0) dropped.inc({ reader }, lost);
    },
    read: () => lastRead.set({ reader }, Date.now() / 1_000),
    rings: () => rings.inc({ reader }),
    doorbell: (current: DoorbellState) => {
      for (const name of states) state.set({ reader, state: name }, name === current ? 1 : 0);
    },
  };
}
