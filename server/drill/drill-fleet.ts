import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { openDatabase } from '../database.ts';
import { type LocalDatabase, openLocalDatabase } from '../dev/local-postgres.ts';
import { freePort } from '../dev/ports.ts';
import { asOperator, registerCell } from '../dev/register-cell.ts';
import { type ChildPlan, endChild, forkCli } from '../dev/supervised-child.ts';
import { createLogger } from '../log.ts';
import { type Ask, switchMode } from '../operator/mode-steps.ts';
import { Problem } from '../problem.ts';
import type { AdmitMode } from '../sql-interface.ts';
import { type Link, openLink } from './link.ts';
import type { Timeline } from './timeline.ts';

/** The fleet that a drill works on: Postgres, directors and cells as processes, and a wire before each that can be cut. */

export interface CellPlan {
  id: string;
  region: string;
}

export interface DrillProcess {
  id: string;
  /** As hosts dial it: for a cell, the near end of its wire. */
  origin: string;
  /** It reaches Postgres by this wire. */
  databaseLink: Link;
  start(): Promise<void>;
  /** SIGKILL: it says nothing to anybody. */
  kill(): Promise<void>;
  /** SIGTERM: it says goodbye. */
  end(): Promise<void>;
  freeze(): void;
  thaw(): void;
  /** It ended, and nobody asked it to: its exit code or signal. */
  diedOf: string | null;
}

export interface DrillCell extends DrillProcess {
  region: string;
  /** Hosts, phones and directors reach it by this one. */
  link: Link;
}

export interface DrillFleet {
  directors: DrillProcess[];
  cells: DrillCell[];
  cell(id: string): DrillCell;
  selfHostedKey: string;
  database: LocalDatabase;
  /** A statement of the operator. */
  ask: Ask;
  /** As `orca-relay mode` does it, each step told. */
  switchMode(cellId: string, mode: AdmitMode, timeline: Timeline, signal: AbortSignal): Promise<void>;
  /** Lines of every process's log that say so, in the order they came. */
  events(name: string): LogLine[];
  stop(): Promise<void>;
}

export interface LogLine {
  process: string;
  /** On this process's clock. */
  at: number;
  entry: Record<string, unknown>;
}

const HOST = '127.0.0.1';
const START_TIMEOUT_MS = 30_000;
/** A hard cap that leaves room for every host of a drill on any of its cells. */
const HARD_CAP = 3_000;
const UNOBSERVED_BOUND = 60;
const KEPT_LINES = 200_000;
/** Cells are switched side by side while something watches. */
const OPERATOR_POOL = 8;
const REGISTERED = {
  cellCapacity: HARD_CAP,
  connectionLimit: { hardCap: HARD_CAP, unobservedBound: UNOBSERVED_BOUND },
};

export interface FleetPlan {
  cells: CellPlan[];
  directors: number;
  /** Of every process, where it is not as this one was started. */
  node?: (id: string) => { script: string; options: string[]; env: NodeJS.ProcessEnv };
  /** Before anything but Postgres runs. */
  prepare?: (database: LocalDatabase) => Promise<void>;
}

/** Everything listens and is heard when this resolves. Throws a {@link Problem}; then nothing is left running. */
export async function startDrillFleet(plan: FleetPlan): Promise<DrillFleet> {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'orca-relay-drill-'));
  const undo: Workshop['undo'] = [() => rmSync(dataDir, { recursive: true, force: true })];
  const stop = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const database = await openLocalDatabase({}, { dataDir });
    undo.push(database.stop);
    await plan.prepare?.(database);
    const log = new DrillLog();
    const operator = openDatabase({
      url: database.urls.operator,
      applicationName: 'orca-relay/drill',
      poolMax: OPERATOR_POOL,
      log: createLogger({ role: 'operator', level: 'silent' }),
    });
    undo.push(() => operator.close());
    const ask: Ask = (text, values) => operator.query(text, values);
    const common = {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      ORCA_RELAY_HOST: HOST,
      ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: database.secrets.signingKey,
      ORCA_RELAY_SELF_HOSTED_KEY: database.secrets.selfHostedKey,
    };
    const shop: Workshop = { database, common, log, undo, node: plan.node };
    const cells: DrillCell[] = [];
    for (const each of plan.cells) cells.push(await planCell(each, shop));
    const directors: DrillProcess[] = [];
    for (let n = 1; n <= plan.directors; n++) directors.push(await planDirector(`d${n}`, shop));
    await Promise.all([...cells, ...directors].map((each) => each.start()));
    await allHeard(ask, cells.length);
    return {
      directors,
      cells,
      cell: (id) => cells.find((cell) => cell.id === id) as DrillCell,
      selfHostedKey: database.secrets.selfHostedKey,
      database,
      ask,
      switchMode: (cellId, mode, timeline, signal) =>
        switchMode(ask, cellId, mode, { onStep: (text) => timeline.says(`${cellId}: ${text}`), signal }),
      events: (name) => log.named(name),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

interface Workshop {
  database: LocalDatabase;
  /** Environment of every process. */
  common: NodeJS.ProcessEnv;
  log: DrillLog;
  undo: (() => Promise<void> | void)[];
  node: FleetPlan['node'];
}

async function planCell({ id, region }: CellPlan, shop: Workshop): Promise<DrillCell> {
  const { database, common, undo } = shop;
  const port = await freePort(HOST);
  const link = await openLink(port);
  const databaseLink = await openLink(Number(new URL(database.urls.cell).port));
  const origin = originOf(link.port);
  await asOperator(database.urls.operator, async (operator) => {
    const answer = await registerCell(operator, { id, url: origin }, { region, ...REGISTERED });
    if (answer !== 'ok') throw new Problem(`cannot register ${id}: ${answer}`);
  });
  const env = {
    ...common,
    PORT: `${port}`,
    ORCA_RELAY_PUBLIC_URL: origin,
    ORCA_RELAY_CELL_URL: origin,
    ORCA_RELAY_CELL_ID: id,
    ORCA_RELAY_REGION: region,
    ORCA_RELAY_CELL_CAPACITY: `${HARD_CAP}`,
    ORCA_RELAY_CELL_CONNECTION_HARD_CAP: `${HARD_CAP}`,
    ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND: `${UNOBSERVED_BOUND}`,
    DATABASE_URL: throughPort(database.urls.cell, databaseLink.port),
  };
  undo.push(
    () => link.stop(),
    () => databaseLink.stop(),
  );
  const own = new OwnProcess(id, 'cell', env, shop);
  undo.push(() => own.end());
  return Object.assign(own, { origin, region, link, databaseLink });
}

async function planDirector(id: string, shop: Workshop): Promise<DrillProcess> {
  const { database, common, undo } = shop;
  const origin = originOf(await freePort(HOST));
  const databaseLink = await openLink(Number(new URL(database.urls.director).port));
  undo.push(() => databaseLink.stop());
  const env = {
    ...common,
    PORT: new URL(origin).port,
    ORCA_RELAY_PUBLIC_URL: origin,
    DATABASE_URL: throughPort(database.urls.director, databaseLink.port),
  };
  const own = new OwnProcess(id, 'director', env, shop);
  undo.push(() => own.end());
  return Object.assign(own, { origin, databaseLink });
}

function originOf(port: number): string {
  return `http://${HOST}:${port}`;
}

function throughPort(url: string, port: number): string {
  const through = new URL(url);
  through.port = `${port}`;
  return through.href;
}

async function allHeard(ask: Ask, cells: number): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const [row] = await ask<{ ready: number }>('select count(*) as ready from relay_v1.fleet f where f.ready');
    if (row?.ready === cells) return;
    if (performance.now() > deadline) throw new Problem(`not every cell was heard within ${START_TIMEOUT_MS / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** A role in a process of its own, which stays down when it is killed. */
class OwnProcess {
  readonly id: string;
  readonly #plan: ChildPlan;
  readonly #log: DrillLog;
  #child: ChildProcess | null = null;
  #expected = false;
  diedOf: string | null = null;

  constructor(id: string, role: 'cell' | 'director', env: NodeJS.ProcessEnv, { log, node }: Workshop) {
    this.id = id;
    const own = node?.(id);
    const { script, options } = own ?? {};
    this.#plan = {
      name: id,
      args: [role],
      env: { ...env, ...own?.env },
      ...(script !== undefined && options !== undefined ? { node: { script, options } } : {}),
    };
    this.#log = log;
  }

  start(): Promise<void> {
    const child = forkCli(this.#plan);
    this.#child = child;
    this.#expected = false;
    for (const stream of [child.stdout, child.stderr]) {
      if (stream) createInterface({ input: stream }).on('line', (line) => this.#log.take(this.id, line));
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Problem(`${this.id} does not listen after ${START_TIMEOUT_MS / 1000} s`)),
        START_TIMEOUT_MS,
      );
      child.on('message', () => {
        clearTimeout(timer);
        resolve();
      });
      child.on('exit', (code, signal) => {
        clearTimeout(timer);
        if (!this.#expected) this.diedOf = signal ?? `exit code ${code}`;
        reject(new Problem(`${this.id} ended while it started (${signal ?? `exit code ${code}`})`));
      });
    });
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#expected = true;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
  }

  freeze(): void {
    this.#child?.kill('SIGSTOP');
  }

  thaw(): void {
    this.#child?.kill('SIGCONT');
  }

  end(): Promise<void> {
    this.#expected = true;
    this.thaw();
    return endChild(this.#child);
  }
}

class DrillLog {
  readonly #lines: LogLine[] = [];

  take(process: string, line: string): void {
    if (this.#lines.length >= KEPT_LINES) return;
    try {
      this.#lines.push({ process, at: performance.now(), entry: JSON.parse(line) as Record<string, unknown> });
    } catch {
      this.#lines.push({ process, at: performance.now(), entry: { msg: line } });
    }
  }

  named(name: string): LogLine[] {
    return this.#lines.filter(({ entry }) => entry.event === name);
  }
}
