import { setTimeout as sleep } from 'node:timers/promises';
import type { FreshDatabase } from '../support/database.ts';
import type { Granted } from './history.ts';
import { addCell, beat, incarnation, Session } from './placement-sessions.ts';

const CELLS = 8;
const CELL_UNITS = 150;
const BEAT_MS = 1_000;

const pick = <T>(from: readonly T[]): T => from[Math.floor(Math.random() * from.length)]!;
const cellName = (n: number) => `c${n}`;

/**
 * A fleet whose hosts ask, attach, renew and leave while an operator drains, evacuates, rolls, fences and revives its
 * cells: everything at once, in random order, over many sessions. Nothing here is awaited but the database.
 */
export class FleetInMotion {
  readonly granted: Granted[] = [];
  readonly outcomes = new Map<string, number>();
  readonly #db: FreshDatabase;
  readonly #hosts: readonly string[];
  /** Process of each cell, by number; a dead cell sends no heartbeats. */
  readonly #processes = new Map<string, number>();
  readonly #dead = new Set<string>();
  /** The highest epoch that anybody was told of a host. */
  readonly #floors = new Map<string, number>();
  #generation = 0;

  private constructor(db: FreshDatabase, hosts: number) {
    this.#db = db;
    this.#hosts = Array.from({ length: hosts }, (_, n) => `h${n}`);
  }

  static async start(db: FreshDatabase, hosts: number): Promise<FleetInMotion> {
    const fleet = new FleetInMotion(db, hosts);
    for (let n = 0; n < CELLS; n++) {
      await addCell(db, { cellId: cellName(n), units: CELL_UNITS, region: n % 2 === 0 ? 'east' : 'west' });
      fleet.#processes.set(cellName(n), 1);
    }
    return fleet;
  }

  /** Runs for so long on the wall clock, with so many sessions of hosts. */
  async run(ms: number, workers: number): Promise<void> {
    const until = performance.now() + ms;
    const loop = async (step: (session: Session) => Promise<void>) => {
      const session = await Session.open(this.#db.url);
      try {
        while (performance.now() < until) await step(session).catch((error) => this.#lockNotHad(error));
      } finally {
        await session.close();
      }
    };
    await Promise.all([
      ...Array.from({ length: workers }, () => loop((session) => this.#hostActs(session))),
      loop((session) => this.#operatorActs(session)),
      loop((session) => this.#sweep(session)),
      loop(() => this.#pulse()),
    ]);
  }

  /** On a slow machine a lock is kept for longer than somebody waits for it: nothing was done, and that is an answer. */
  #lockNotHad(error: { code?: string }): void {
    if (error.code !== '55P03') throw error;
    this.#count('lock not had');
  }

  #count(what: string): void {
    this.outcomes.set(what, (this.outcomes.get(what) ?? 0) + 1);
  }

  async #hostActs(session: Session): Promise<void> {
    const host = pick(this.#hosts);
    const by = pick(['host', 'host', 'host', 'resolve', 'invite', 'sweep'] as const);
    const floor = by === 'sweep' ? undefined : (this.#floors.get(host) ?? 0);
    const answer = await session.assign(host, { by, ...(floor === undefined ? {} : { floor }) });
    this.#count(`${answer.outcome} ${answer.rule}`);
    if (answer.outcome !== 'granted') return;
    const seat = { host, cellId: answer.cell_id!, epoch: answer.epoch! };
    this.granted.push({ ...seat, floor: floor ?? 0 });
    this.#floors.set(host, Math.max(seat.epoch, this.#floors.get(host) ?? 0));
    if (by !== 'host' || this.#dead.has(seat.cellId) || Math.random() < 0.2) return;
    await this.#attach(session, seat);
    if (Math.random() < 0.05) await this.#book(session, host, seat.epoch);
  }

  async #attach(
    session: Session,
    { host, cellId, epoch }: { host: string; cellId: string; epoch: number },
  ): Promise<void> {
    const generation = ++this.#generation;
    const who = [`user-${host}`, host, cellId, incarnation(this.#processes.get(cellId)), epoch, generation];
    const [row] = await session.query<{ outcome: string }>(
      'select * from relay_v1.activate_control($1, $2, $3, $4, $5, $6, 1)',
      who,
    );
    this.#count(`activate ${row!.outcome}`);
    if (row!.outcome !== 'active' || Math.random() < 0.7) return;
    await session.query('select relay_v1.release_lease($1, $2, $3, $4, $5, $6)', who);
  }

  /** A director's booking that the ledger writes down: a seat that the row does not know yet. */
  async #book(session: Session, host: string, epoch: number): Promise<void> {
    const seat = { user_id: `user-${host}`, relay_host_id: host, cell_id: cellName(0), epoch: epoch + 1 };
    const [row] = await session.query<{ result: string }>('select * from relay_v1.record_seats($1)', [
      JSON.stringify([seat]),
    ]);
    this.#count(`ledger ${row!.result}`);
    if (row!.result === 'recorded') this.#floors.set(host, Math.max(seat.epoch, this.#floors.get(host) ?? 0));
  }

  async #operatorActs(session: Session): Promise<void> {
    const cell = pick([...this.#processes.keys()]);
    const other = pick([...this.#processes.keys()]);
    const [call, values]: [string, unknown[]] = pick([
      ["set_admission($1, 'general')", [cell]],
      ["set_admission($1, 'general')", [other]],
      ["set_admission($1, 'migration-only')", [cell]],
      ["set_admission($1, 'existing-only')", [cell]],
      ['start_drain($1, 1000, 0)', [cell]],
      ['cancel_drain($1)', [cell]],
      ['isolate_for_roll($1)', [cell]],
      ['restore_after_roll($1)', [cell]],
      ["set_admit_mode($1, 'reserve')", [cellName(0)]],
      ["set_admit_mode($1, 'db')", [cellName(0)]],
      ['(select outcome from relay_v1.evacuate_cell($1, $2, 20))', [cell, other]],
      ['kill', [cell]],
      ['revive', [cell]],
      ['revive', [other]],
    ]);
    if (call === 'kill') await this.#killAndFence(session, cell);
    else if (call === 'revive') await this.#revive(cell);
    else {
      const text = call.startsWith('(') ? call : `relay_v1.${call}`;
      const [row] = await session.query<{ answer: string }>(`select ${text} as answer`, values);
      this.#count(`${/\w+_\w+(?=\()/.exec(text.replace('relay_v1.', ''))?.[0]} ${row!.answer}`);
    }
    await sleep(20);
  }

  async #killAndFence(session: Session, cell: string): Promise<void> {
    if (this.#dead.size >= CELLS / 2) return;
    this.#dead.add(cell);
    await session.query("select relay_v1.set_admission($1, 'existing-only')", [cell]);
    const [begun] = await session.query<{ attempt_id: string | null }>(
      "select * from relay_v1.fence_begin($1, $2, $3, 'random')",
      [cell, incarnation(this.#processes.get(cell)), `op-${Math.random()}`],
    );
    if (begun?.attempt_id == null) return;
    await session.query('select relay_v1.fence_start($1)', [begun.attempt_id]);
    for (let s = 0; s < 46; s += 15) {
      await this.#db.advanceClock(15_500);
      await this.#beatAll();
    }
    const [row] = await session.query<{ answer: string }>('select relay_v1.fence_commit($1) as answer', [
      begun.attempt_id,
    ]);
    this.#count(`fence_commit ${row!.answer}`);
  }

  async #revive(cell: string): Promise<void> {
    if (!this.#dead.has(cell)) return;
    this.#processes.set(cell, this.#processes.get(cell)! + 1);
    this.#dead.delete(cell);
    await beat(this.#db, cell, 0, this.#processes.get(cell));
  }

  async #sweep(session: Session): Promise<void> {
    for (const fn of ['sweep_dead_cells', 'sweep_migrations', 'sweep_leases']) {
      const [row] = await session.query<{ rows: number }>(`select relay_v1.${fn}() as rows`);
      if (row!.rows > 0) this.#count(fn);
    }
    await sleep(50);
  }

  async #pulse(): Promise<void> {
    await this.#beatAll();
    await sleep(Math.min(BEAT_MS, 200));
  }

  async #beatAll(): Promise<void> {
    for (const [cell, process] of this.#processes) {
      if (!this.#dead.has(cell)) await beat(this.#db, cell, 0, process);
    }
  }
}
