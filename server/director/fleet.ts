import { LIMITS } from '../../contract/limits.ts';
import type { Clock, Timer } from '../clock.ts';
import type { Database } from '../database.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { CellRow, ChangeKind } from '../sql-interface.ts';

/**
 * The cells as this director last read them: anew when the change log says that one changed, and every 5 s without being
 * told. The last list is kept while the database is away, and asked for less and less often.
 */

const EVERY_MS = 5_000;
const FIRST_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 30_000;
const READ_TIMEOUT_MS = 3_000;

/** Whether a change is about a cell, not about a host on one. */
const ABOUT_CELLS: Record<ChangeKind, boolean> = {
  placed: false,
  moved: false,
  granted: false,
  lease_ended: false,
  recorded: false,
  migration: false,
  admission: true,
  mode: true,
  flags: true,
  effective_mode: true,
  drain: true,
  fence: true,
  cell_registered: true,
  cell_retired: true,
  incarnation: true,
};

export function isAboutCells(kind: ChangeKind): boolean {
  return ABOUT_CELLS[kind];
}

export class Fleet {
  readonly #db: Pick<Database, 'call'>;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #meters: Meters;
  #list: readonly CellRow[] | null = null;
  #timer: Timer | undefined;
  #reading: Promise<void> | null = null;
  #again = false;
  #failures = 0;
  #onRead: () => void = () => undefined;
  #stopped = false;

  constructor(db: Pick<Database, 'call'>, log: Logger, metrics: Metrics, clock: Clock) {
    this.#db = db;
    this.#log = log;
    this.#clock = clock;
    this.#meters = measure(metrics);
  }

  get cells(): readonly CellRow[] {
    return this.#list ?? [];
  }

  /** Another array whenever it was read anew; null before it was first read. */
  get list(): readonly CellRow[] | null {
    return this.#list;
  }

  onRead(listener: () => void): void {
    this.#onRead = listener;
  }

  /** Reads once, and once more if it was asked to meanwhile. Never rejects. */
  refresh(): Promise<void> {
    if (this.#reading) {
      this.#again = true;
      return this.#reading;
    }
    this.#clock.clearTimeout(this.#timer);
    this.#reading = this.#read().finally(() => {
      this.#reading = null;
      if (this.#stopped) return;
      const again = this.#again;
      this.#again = false;
      this.#timer = this.#clock.setTimeout(() => void this.refresh(), again ? 0 : this.#pauseMs());
    });
    return this.#reading;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#clock.clearTimeout(this.#timer);
    await this.#reading;
  }

  #pauseMs(): number {
    return this.#failures === 0 ? EVERY_MS : Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (this.#failures - 1));
  }

  async #read(): Promise<void> {
    try {
      const list = await this.#db.call('cells', {}, { timeoutMs: READ_TIMEOUT_MS });
      this.#failures = 0;
      this.#list = list;
      this.#meters.show(list);
    } catch (error) {
      this.#failures += 1;
      if (this.#failures === 1) this.#log.warn({ event: 'orca_relay_shadow_seat_cell_list_failed', error });
      return;
    }
    this.#onRead();
  }
}

type Meters = ReturnType<typeof measure>;

function measure(metrics: Metrics) {
  const ready = metrics.gauge('orca_relay_cell_ready', '1 when the cell last said it is ready', ['cell', 'region']);
  const heard = metrics.gauge('orca_relay_cell_heard_age_seconds', 'Since the last heartbeat', ['cell', 'region']);
  const units = metrics.gauge('orca_relay_cell_units', 'Units at the last heartbeat', ['cell', 'region']);
  const limit = metrics.gauge('orca_relay_cell_unit_limit', 'Units up to which it is given hosts', ['cell', 'region']);
  const admission = metrics.gauge('orca_relay_cell_admission', '1 for its admission', ['cell', 'region', 'admission']);
  return {
    show(cells: readonly CellRow[]) {
      for (const gauge of [ready, heard, units, limit, admission]) gauge.reset();
      for (const { cell_id: cell, region, ...row } of cells) {
        ready.set({ cell, region }, row.ready ? 1 : 0);
        if (row.heard_age_ms !== null) heard.set({ cell, region }, row.heard_age_ms / 1_000);
        if (row.enforced_units !== null) units.set({ cell, region }, row.enforced_units);
        limit.set({ cell, region }, unitLimit(row));
        admission.set({ cell, region, admission: row.admission }, 1);
      }
    },
  };
}

/** As `relay.cell.unit_limit` has it. */
function unitLimit(row: Omit<CellRow, 'cell_id' | 'region'>): number {
  const { connection_hard_cap: hardCap, connection_unobserved_bound: bound } = row;
  return hardCap === null || bound === null ? row.capacity_units : hardCap - LIMITS.reservedHostControls - bound;
}
