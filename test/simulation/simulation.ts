import { LIMITS } from '../../contract/limits.ts';
import { readConfig } from '../../server/config.ts';
import type { ChangeCursor, ChangesPage, ParamsOf, ResultOf } from '../../server/sql-interface.ts';
import { between, pick, seeded } from '../chaos/random.ts';
import { historyProblems } from '../race/history.ts';
import type { FreshDatabase } from '../support/database.ts';
import { type CellLimit, REAL_RULES, SimCell } from './sim-cell.ts';
import { SimDatabase } from './sim-database.ts';
import { SimDirector, type SimWorld, type Wire } from './sim-director.ts';
import { SimHost } from './sim-host.ts';
import { VirtualTime } from './virtual-time.ts';
import { Witness } from './witness.ts';

/**
 * Scenario 92: a fleet of which only time, wires and sockets are thought of. The directors' memory, plan, ledger and lanes, the
 * cells' books, units and rules of admission and every decision of Postgres are the real ones. A seed decides everything.
 */

/** What is wrong in the relay on purpose, so that an invariant must notice. */
export type Fault =
  | 'no-cap'
  | 'no-intake'
  | 'no-demotion'
  | 'ledger-falls'
  | 'endless-bookings'
  | 'no-floor'
  | 'silent-trip';

export interface SimulationOptions {
  seed: number;
  fault?: Fault;
}

export interface Outcome {
  findings: string[];
  counts: Record<string, number>;
}

const DIRECTORS = 5;
/**
 * The west has few cells, and is wanted: they are paced. The east has many small ones that the others overflow to. Together
 * they have room for hardly more hosts than there are. A hard cap, less 100 for rebinds and the bound, is what a cell takes.
 */
const EAST: Region = { cells: 27, inDbMode: 6, hosts: 30, limit: { hardCap: 105, unobservedBound: 2 } };
const WEST: Region = { cells: 3, inDbMode: 0, hosts: 150, limit: { hardCap: 142, unobservedBound: 2 } };
const FAULTS_MS = 50_000;
const QUIET_MS = 62_000;
const BEAT_MS = 15_000;
const RENEW_MS = 30_000;
const CHANGES_MS = 1_000;
const SWEEP_MS = 30_000;
const LOOK_MS = 1_000;
const TRIPPED_MS = 20_000;
const WALL_START = Date.UTC(2026, 0, 1);
const NO_CAP = { hardCap: 100_000, unobservedBound: 2 };

interface Region {
  cells: number;
  inDbMode: number;
  hosts: number;
  limit: CellLimit;
}

/** @param fresh a database that nobody has used; it is dropped. */
export async function simulate(fresh: FreshDatabase, { seed, fault }: SimulationOptions): Promise<Outcome> {
  const realRandom = Math.random;
  const random = seeded(seed);
  // What decides at random, in a plan or a pause, is decided by the seed.
  Math.random = random;
  const fleet = new SimFleet(fresh, random, fault);
  try {
    await fleet.open();
    await fleet.run();
    return await fleet.outcome();
  } finally {
    Math.random = realRandom;
    await fleet.close();
    await fresh.drop();
  }
}

class SimFleet {
  readonly #fresh: FreshDatabase;
  readonly #random: () => number;
  readonly #fault: Fault | undefined;
  readonly #time = new VirtualTime(WALL_START);
  readonly #witness = new Witness(this.#time);
  readonly #db: SimDatabase;
  readonly #cells = new Map<string, SimCell>();
  readonly #wires = new SimWires();
  readonly #directors: SimDirector[] = [];
  readonly #hosts: SimHost[] = [];
  readonly #world: SimWorld;
  #made = 0;
  #outages = 0;

  constructor(fresh: FreshDatabase, random: () => number, fault: Fault | undefined) {
    this.#fresh = fresh;
    this.#random = random;
    this.#fault = fault;
    this.#db = new SimDatabase(this.#time, fresh, {
      before: (fn, params) => (fault === 'no-floor' && fn === 'assign' ? blind(params) : params),
      after: (fn, params, result) => {
        if (fn !== 'assign') return;
        const { epoch_floor: floor } = params as ParamsOf<'assign'>;
        const { outcome, moved, epoch, rule } = result as ResultOf<'assign'>;
        if (outcome !== 'granted') return;
        const minted = moved || rule === 'new' || rule === 'behind';
        this.#witness.granted(epoch as number, floor ?? 0, minted);
      },
    });
    const config = readConfig({
      ORCA_RELAY_ROLE: 'director',
      ORCA_RELAY_REGION: 'east',
      ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: 'a signing key of thirty-two bytes or more',
      DATABASE_URL: fresh.url,
    });
    this.#world = { time: this.#time, db: this.#db, config, cells: this.#cells, wire: this.#wires.wire(fault) };
  }

  async open(): Promise<void> {
    await this.#fresh.setClock(WALL_START);
    await this.#db.seed(this.#random());
    await this.#addCells('east', EAST);
    await this.#addCells('west', WEST);
    for (let n = 0; n < DIRECTORS; n++) this.#addDirector();
    this.#addHosts('east', EAST.hosts);
    this.#addHosts('west', WEST.hosts);
    this.#repeat(BEAT_MS, (cell) => cell.beat());
    this.#repeat(RENEW_MS, (cell) => cell.renew());
    void this.#followChanges();
    void this.#sweep();
    void this.#look();
  }

  async run(): Promise<void> {
    void this.#misfortunes();
    await this.#time.run(FAULTS_MS);
    if (this.#fault === 'ledger-falls') await this.#letTheLedgerFall();
    await this.#time.run(QUIET_MS);
  }

  async outcome(): Promise<Outcome> {
    const { findings, counts } = this.#witness;
    const problems = await historyProblems(this.#fresh);
    return { findings: [...findings, ...problems.map((problem) => `history: ${problem}`)], counts };
  }

  async close(): Promise<void> {
    for (const host of this.#hosts) host.stop();
    for (const director of this.#directors) director.kill();
    // What is under way comes to its end.
    await this.#time.run(10_000);
    await this.#db.close();
  }

  async #addCells(region: string, { cells, inDbMode, limit }: Region): Promise<void> {
    for (let n = 0; n < cells; n++) {
      const mode = n < inDbMode ? 'db' : 'reserve';
      const rules = {
        ...REAL_RULES,
        limit: this.#fault === 'no-cap' ? NO_CAP : limit,
        ...(this.#fault === 'no-intake' ? { intakePerSec: 1_000 } : {}),
        ...(this.#fault === 'no-demotion' ? { demotes: false } : {}),
        ...(this.#fault === 'silent-trip' ? { saysMode: false } : {}),
      };
      const plan = {
        id: `${region}-${n}`,
        region,
        mode,
        mostHosts: limit.hardCap - LIMITS.reservedHostControls,
      } as const;
      const cell = new SimCell(this.#time, this.#db, this.#witness, plan, rules);
      const { hardCap, unobservedBound } = rules.limit;
      await this.#fresh.query('select relay_v1.register_cell($1, $2, $3, $4, $5, $6)', [
        cell.id,
        cell.url,
        region,
        900,
        hardCap,
        unobservedBound,
      ]);
      if (mode === 'reserve') await this.#fresh.query(`select relay_v1.set_admit_mode($1, 'reserve')`, [cell.id]);
      this.#cells.set(cell.id, cell);
      const started = cell.start();
      await this.#time.run(0);
      await started;
    }
  }

  #addDirector(): void {
    this.#made += 1;
    const director = new SimDirector(this.#world, `director-${this.#made}`);
    this.#directors.push(director);
    director.start();
  }

  #addHosts(region: string, count: number): void {
    const byUrl = new Map([...this.#cells.values()].map((cell) => [cell.url, cell]));
    for (let n = 0; n < count; n++) {
      const relayHostId = `${region}-host-${String(n).padStart(6, '0')}`;
      const world = {
        time: this.#time,
        random: this.#random,
        directors: () => this.#directors,
        cellAt: (url: string) => byUrl.get(url),
        asks: (name: { userId: string; relayHostId: string }) => this.#witness.asks(name),
      };
      const host = new SimHost(world, { userId: `user-${region}-${n}`, relayHostId }, region);
      this.#hosts.push(host);
      this.#time.setTimeout(() => void host.live(), between(this.#random, 2_000, 4_000));
    }
  }

  #repeat(everyMs: number, work: (cell: SimCell) => Promise<void>): void {
    for (const cell of this.#cells.values()) {
      const again = () => {
        void work(cell);
        this.#time.setTimeout(again, everyMs);
      };
      this.#time.setTimeout(again, between(this.#random, 0, everyMs));
    }
  }

  /** What each cell reads for itself, read once for all of them. */
  async #followChanges(): Promise<void> {
    let cursor: ChangeCursor | null = null;
    for (;;) {
      const page: ChangesPage | null = await this.#db
        .call('changes_since', { cursor, max_rows: 500 })
        .catch(() => null);
      if (page !== null) {
        cursor = page.cursor;
        for (const change of page.changes) {
          if (change.kind === 'moved' || change.kind === 'recorded')
            this.#cells.get(change.from_cell ?? '')?.moved(change);
        }
      }
      await this.#time.sleep(CHANGES_MS);
    }
  }

  async #sweep(): Promise<void> {
    for (;;) {
      await this.#time.sleep(SWEEP_MS);
      await this.#db.call('sweep_leases', {}).catch(() => 0);
      await this.#db.call('sweep_dead_cells', {}).catch(() => 0);
    }
  }

  async #look(): Promise<void> {
    for (;;) {
      this.#witness.look();
      await this.#time.sleep(LOOK_MS);
    }
  }

  async #misfortunes(): Promise<void> {
    const random = this.#random;
    while (this.#time.now() < FAULTS_MS - TRIPPED_MS / 2) {
      await this.#time.sleep(between(random, 500, 3_000));
      const cell = pick(
        random,
        [...this.#cells.values()].filter(({ tripped }) => !tripped),
      );
      const happen = pick(random, [
        () => this.#restart(cell),
        () => this.#drain(cell),
        () => {
          cell.stalledUntil = this.#time.now() + between(random, 1_000, 20_000);
        },
        () => this.#restartDirector(),
        () => this.#wires.delay(cell.id, between(random, 0, 10_000)),
        () => this.#wires.delay(cell.id, 0),
        () => this.#wires.loseSome(between(random, 0, 0.1)),
        () => this.#loseDatabase(),
        () => this.#trip(cell),
      ]);
      void happen();
    }
    this.#wires.heal();
  }

  async #restart(cell: SimCell): Promise<void> {
    if (!cell.up) return;
    cell.kill();
    await this.#time.sleep(between(this.#random, 500, 15_000));
    await cell.start();
  }

  async #drain(cell: SimCell): Promise<void> {
    if (!cell.up || cell.draining) return;
    await cell.drain();
    await this.#time.sleep(between(this.#random, 500, 5_000));
    await cell.start();
  }

  async #restartDirector(): Promise<void> {
    if (this.#directors.length < DIRECTORS) return;
    const at = Math.floor(this.#random() * this.#directors.length);
    const [gone] = this.#directors.splice(at, 1);
    gone?.kill();
    await this.#time.sleep(between(this.#random, 500, 5_000));
    this.#addDirector();
  }

  async #loseDatabase(): Promise<void> {
    if (this.#db.away || this.#random() < 0.5) return;
    this.#outages += 1;
    this.#db.away = true;
    await this.#time.sleep(between(this.#random, 1_000, 15_000));
    this.#db.away = false;
  }

  /** A tripped cell takes hosts from the database again within 20 s, unless that was away meanwhile. */
  async #trip(cell: SimCell): Promise<void> {
    if (!cell.up || cell.draining || !cell.answers) return;
    void cell.trip();
    const { incarnation } = cell;
    const outages = this.#outages;
    await this.#time.sleep(TRIPPED_MS);
    if (cell.incarnation !== incarnation || !cell.tripped || this.#outages !== outages || this.#db.away) return;
    const explained = await this.#db.call('explain_assign', {
      user_id: 'user-probe',
      relay_host_id: 'probe-host-00000',
      preferred_region: cell.region,
    });
    const { candidates } = explained as { candidates: { cell_id: string; rejected: string | null }[] };
    this.#witness.tripped(cell, candidates.find(({ cell_id }) => cell_id === cell.id)?.rejected ?? null);
    await this.#time.sleep(TRIPPED_MS);
    await cell.rearm();
  }

  async #letTheLedgerFall(): Promise<void> {
    await this.#fresh.query(`
      alter table relay.assignment disable trigger user;
      update relay.assignment set epoch = epoch - 1 where epoch > 1;
      alter table relay.assignment enable trigger user`);
  }
}

/** A director that does not say what it knows. */
function blind<P>(params: P): P {
  return { ...params, epoch_floor: 0, seen: null };
}

class SimWires {
  readonly #lags = new Map<string, number>();
  #lossShare = 0;

  delay(cellId: string, ms: number): void {
    this.#lags.set(cellId, ms);
  }

  loseSome(share: number): void {
    this.#lossShare = share;
  }

  heal(): void {
    this.#lags.clear();
    this.#lossShare = 0;
  }

  wire(fault: Fault | undefined): Wire {
    return {
      lagMs: ({ id }) => this.#lags.get(id) ?? 0,
      loses: () => Math.random() < this.#lossShare,
      echoes: fault === 'endless-bookings' ? 8 : 0,
    };
  }
}
