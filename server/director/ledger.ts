import { LIMITS } from '../../contract/limits.ts';
import type { Clock, Timer } from '../clock.ts';
import { every } from '../clock.ts';
import { DatabaseError } from '../database-errors.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { ParamsOf, RecordedSeat } from '../sql-interface.ts';
import type { KnownSeat } from './known-rows.ts';
import { hostKey } from './outcomes.ts';
import type { HostName } from './seat-view.ts';

/**
 * Brings the rows of hosts to the seats they took in reserve mode, a moment after the fact (reserve-mode 1.5). Of a host's seats
 * on one cell only the newest waits; a row that is ahead of a seat is told to `onStale`.
 */

const FLUSH_MS = 250;
const CALL_TIMEOUT_MS = 2_000;
/** A process has 3 s to stop in. */
const LAST_CALL_TIMEOUT_MS = 800;
const FIRST_BACKOFF_MS = 250;
const MAX_BACKOFF_MS = 5_000;
const MAX_WAITING = 200_000;
const SUMMARY_MS = 60_000;

export type RecordSeats = (rows: ParamsOf<'record_seats'>['rows'], timeoutMs: number) => Promise<RecordedSeat[]>;

export interface LedgerParts {
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  record: RecordSeats;
  /** Its row is newer than this seat, or gives its epoch to another cell. */
  onStale: (host: HostName, seat: KnownSeat, row: KnownSeat) => void;
}

interface Entry extends KnownSeat {
  host: HostName;
}

export class Ledger {
  readonly #parts: LedgerParts;
  readonly #meters: Meters;
  /** By host and cell, the one that waits longest first. */
  readonly #waiting = new Map<string, Entry>();
  /** What may wait until nothing else does, in the same order. */
  readonly #later = new Map<string, Entry>();
  readonly #stopSummary: () => void;
  #batchRows: number = LIMITS.ledgerBatchRows;
  #underWay = 0;
  #backoffMs = 0;
  #timer: Timer | undefined;
  #flushing: Promise<void> | null = null;
  #stopped = false;
  #totals = { written: 0, dropped: 0, failures: 0 };

  constructor(parts: LedgerParts) {
    this.#parts = parts;
    this.#meters = measure(parts.metrics, () => this.waiting);
    this.#stopSummary = every(parts.clock, SUMMARY_MS, () => this.#summarise());
  }

  /** Seats not recorded yet, those under way too. */
  get waiting(): number {
    return this.#waiting.size + this.#later.size + this.#underWay;
  }

  /**
   * Beyond 200 000 seats the one that waits longest is dropped, and counted: the next reconcile brings it again.
   * @param urgent false: the row most likely says so already, and those that were just taken go first
   */
  add(host: HostName, { cellId, epoch }: KnownSeat, { urgent = true } = {}): void {
    if (epoch < 1) return;
    const entry = { host, cellId, epoch };
    const key = keyOf(entry);
    const before = this.#waiting.get(key) ?? this.#later.get(key);
    if (before !== undefined && before.epoch > epoch) return;
    if (urgent) this.#later.delete(key);
    const queue = urgent || this.#waiting.has(key) ? this.#waiting : this.#later;
    queue.set(key, entry);
    if (this.#waiting.size + this.#later.size > MAX_WAITING) this.#overflow();
    this.#arm(FLUSH_MS);
  }

  /** Writes one more batch if the database answers; what is left, the reconcile of another director brings. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#parts.clock.clearTimeout(this.#timer);
    this.#stopSummary();
    await this.#flushing;
    if (this.waiting > 0 && this.#backoffMs === 0) await this.#flush(LAST_CALL_TIMEOUT_MS);
    if (this.waiting > 0) this.#drop(this.waiting, 'stopped');
    this.#summarise();
  }

  #arm(delayMs: number): void {
    if (this.#stopped || this.#timer !== undefined || this.#flushing !== null) return;
    this.#timer = this.#parts.clock.setTimeout(() => {
      this.#timer = undefined;
      this.#flushing = this.#flush(CALL_TIMEOUT_MS).finally(() => {
        this.#flushing = null;
        if (this.waiting > 0) this.#arm(Math.max(FLUSH_MS, this.#backoffMs));
      });
    }, delayMs);
  }

  async #flush(timeoutMs: number): Promise<void> {
    const batch = this.#take();
    this.#underWay = batch.length;
    const rows = batch.map(({ host, cellId, epoch }) => ({
      user_id: host.userId,
      relay_host_id: host.relayHostId,
      cell_id: cellId,
      epoch,
    }));
    try {
      const answers = await this.#parts.record(rows, timeoutMs);
      this.#backoffMs = 0;
      this.#batchRows = LIMITS.ledgerBatchRows;
      this.#settle(batch, answers);
    } catch (error) {
      this.#failed(batch, error);
    } finally {
      this.#underWay = 0;
    }
  }

  /** One seat a host, since an answer names the host alone. */
  #take(): Entry[] {
    const batch = new Map<string, Entry>();
    for (const queue of [this.#waiting, this.#later]) {
      for (const [key, entry] of queue) {
        if (batch.size === this.#batchRows) break;
        const host = hostKey(entry.host.userId, entry.host.relayHostId);
        if (batch.has(host)) continue;
        batch.set(host, entry);
        queue.delete(key);
      }
    }
    return [...batch.values()];
  }

  #settle(batch: readonly Entry[], answers: readonly RecordedSeat[]): void {
    const asked = new Map(batch.map((entry) => [hostKey(entry.host.userId, entry.host.relayHostId), entry]));
    for (const { user_id, relay_host_id, result, cell_id, epoch } of answers) {
      const entry = asked.get(hostKey(user_id, relay_host_id));
      if (entry === undefined) continue;
      asked.delete(hostKey(user_id, relay_host_id));
      this.#meters.results.inc({ result });
      if (result === 'busy' || cell_id === null || epoch === null) this.#again(entry);
      else if (result === 'stale') this.#parts.onStale(entry.host, entry, { cellId: cell_id, epoch });
      else this.#totals.written += 1;
    }
    for (const entry of asked.values()) this.#again(entry);
  }

  /**
   * Without an answer it is tried again, ever more slowly. What the database refuses it refuses for ever: the batch is
   * halved until the row that is at fault stands alone, and that one is dropped.
   */
  #failed(batch: readonly Entry[], error: unknown): void {
    this.#totals.failures += 1;
    const refused = error instanceof DatabaseError && !error.retryable;
    if (!refused) {
      this.#backoffMs = Math.min(MAX_BACKOFF_MS, Math.max(FIRST_BACKOFF_MS, this.#backoffMs * 2));
      this.#batchRows = LIMITS.ledgerBatchRows;
    } else if (batch.length > 1) {
      this.#batchRows = Math.ceil(batch.length / 2);
    } else {
      this.#drop(1, 'refused');
      this.#batchRows = LIMITS.ledgerBatchRows;
    }
    this.#meters.failures.inc({ reason: refused ? 'refused' : 'unavailable' });
    this.#parts.log.warn({ event: 'orca_relay_reserve_ledger_failed', rows: batch.length, refused, error });
    if (refused && batch.length === 1) return;
    // in front, as they were
    const later = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const entry of [...batch, ...later]) this.#again(entry);
  }

  /** Unless a newer seat of the host waits by now. */
  #again(entry: Entry): void {
    const newer = this.#waiting.get(keyOf(entry));
    if (newer === undefined || newer.epoch <= entry.epoch) this.#waiting.set(keyOf(entry), entry);
  }

  #overflow(): void {
    const queue = this.#later.size > 0 ? this.#later : this.#waiting;
    const [oldest] = queue.keys();
    if (oldest !== undefined) queue.delete(oldest);
    this.#drop(1, 'overflow');
  }

  #drop(rows: number, reason: 'overflow' | 'refused' | 'stopped'): void {
    this.#totals.dropped += rows;
    this.#meters.dropped.inc({ reason }, rows);
  }

  #summarise(): void {
    const { written, dropped, failures } = this.#totals;
    this.#totals = { written: 0, dropped: 0, failures: 0 };
    const pending = this.waiting;
    if (written + dropped + failures + pending === 0) return;
    this.#parts.log.info({ event: 'orca_relay_reserve_ledger_summary', written, pending, dropped, failures });
  }
}

function keyOf({ host, cellId }: Entry): string {
  return `${hostKey(host.userId, host.relayHostId)}\0${cellId}`;
}

type Meters = ReturnType<typeof measure>;

function measure(metrics: Metrics, waiting: () => number) {
  metrics.gauge('orca_relay_reserve_ledger_waiting', 'Seats that wait to be recorded', [], waiting);
  return {
    results: metrics.counter('orca_relay_reserve_ledger_rows_total', 'Answers of the ledger', ['result']),
    dropped: metrics.counter('orca_relay_reserve_ledger_dropped_total', 'Seats not recorded', ['reason']),
    failures: metrics.counter('orca_relay_reserve_ledger_failures_total', 'Batches not recorded', ['reason']),
  };
}
