import type { Clock, Timer } from '../clock.ts';
import type { Database } from '../database.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';

/**
 * Periodic cleaning. Every sweep has its own timer and its own transaction: one that fails costs only itself, says so, and
 * is tried again at its next tick. Several directors sweep side by side; the functions skip what another has locked.
 */

export type SweepName =
  | 'sweep_leases'
  | 'sweep_dead_cells'
  | 'sweep_migrations'
  | 'sweep_credentials'
  | 'sweep_changes';

/**
 * How often, how many rows a pass cleans at most, and how many passes a tick makes while they are full. A pass over a fenced
 * cell moves hosts, each with several writes under the latches of its cells: it is short and alone, so that the hosts that
 * ask are not kept waiting, and often, since a fence holds 5 min.
 */
const SWEEPS: Record<SweepName, { everyMs: number; maxRows: number; passes: number }> = {
  sweep_leases: { everyMs: 15_000, maxRows: 1_000, passes: 10 },
  sweep_dead_cells: { everyMs: 3_000, maxRows: 50, passes: 1 },
  sweep_migrations: { everyMs: 10_000, maxRows: 200, passes: 10 },
  sweep_credentials: { everyMs: 60_000, maxRows: 1_000, passes: 10 },
  sweep_changes: { everyMs: 60_000, maxRows: 1_000, passes: 10 },
};
/** So that directors started together do not sweep together. */
const JITTER = 0.2;
const TIMEOUT_MS = 5_000;

export interface Sweeps {
  stop(): Promise<void>;
}

export function startSweeps(db: Pick<Database, 'call'>, log: Logger, metrics: Metrics, clock: Clock): Sweeps {
  const meters = measure(metrics);
  const sweeps = (Object.keys(SWEEPS) as SweepName[]).map((name) => new Sweep(name, db, log, meters, clock));
  return {
    async stop() {
      await Promise.all(sweeps.map((sweep) => sweep.stop()));
    },
  };
}

class Sweep {
  readonly #name: SweepName;
  readonly #db: Pick<Database, 'call'>;
  readonly #log: Logger;
  readonly #meters: Meters;
  readonly #clock: Clock;
  #timer: Timer | undefined;
  #running: Promise<void> | null = null;
  #stopped = false;

  constructor(name: SweepName, db: Pick<Database, 'call'>, log: Logger, meters: Meters, clock: Clock) {
    this.#name = name;
    this.#db = db;
    this.#log = log;
    this.#meters = meters;
    this.#clock = clock;
    this.#arm();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#clock.clearTimeout(this.#timer);
    await this.#running;
  }

  #arm(): void {
    if (this.#stopped) return;
    const delay = SWEEPS[this.#name].everyMs * (1 - JITTER + 2 * JITTER * Math.random());
    this.#timer = this.#clock.setTimeout(() => {
      this.#running = this.#sweep().finally(() => {
        this.#running = null;
        this.#arm();
      });
    }, delay);
  }

  async #sweep(): Promise<void> {
    const name = this.#name;
    const { maxRows, passes } = SWEEPS[name];
    const startedAt = this.#clock.now();
    try {
      for (let pass = 0; pass < passes && !this.#stopped; pass += 1) {
        const rows = await this.#db.call(name, { max_rows: maxRows }, { timeoutMs: TIMEOUT_MS });
        this.#meters.rows.inc({ sweep: name }, rows);
        if (rows < maxRows) break;
      }
      this.#meters.runs.inc({ sweep: name, outcome: 'ok' });
    } catch (error) {
      this.#meters.runs.inc({ sweep: name, outcome: 'failed' });
      this.#log.warn({ event: 'orca_relay_sweep_failed', sweep: name, error });
    } finally {
      this.#meters.seconds.observe({ sweep: name }, (this.#clock.now() - startedAt) / 1_000);
    }
  }
}

type Meters = ReturnType<typeof measure>;

function measure(metrics: Metrics) {
  return {
    runs: metrics.counter('orca_relay_sweeps_total', 'Runs of each sweep', ['sweep', 'outcome']),
    rows: metrics.counter('orca_relay_sweep_rows_total', 'Rows that sweeps cleaned', ['sweep']),
    seconds: metrics.histogram('orca_relay_sweep_seconds', 'Duration of a sweep', ['sweep']),
  };
}
