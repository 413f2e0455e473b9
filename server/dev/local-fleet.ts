import { type Environment, readCapacity } from '../config.ts';
import { Problem } from '../problem.ts';
import { type LocalDatabase, openLocalDatabase } from './local-postgres.ts';
import { chosenSecrets } from './local-secrets.ts';
import { freePort, waitForPort } from './ports.ts';
import { asOperator, type OwnCell, registerCell } from './register-cell.ts';
import { type ChildEvents, type ChildPlan, type SupervisedChild, superviseChild } from './supervised-child.ts';
import { claimDataDir } from './up-state.ts';

export interface LocalFleet {
  director: string;
  cells: OwnCell[];
  selfHostedKey: string;
  children: SupervisedChild[];
  database: LocalDatabase;
  stop(): Promise<void>;
}

export interface LocalFleetOptions {
  env: Environment;
  dataDir: string;
  /** The director's; cells take the following ones. Null: any free ones. */
  port: number | null;
  cells: number;
  events: ChildEvents;
  onPostgresRestart: (problem: string | null) => void;
}

const HOST = '127.0.0.1';
const HEARD_TIMEOUT_MS = 10_000;
const HEARD_POLL_MS = 100;
/** How long the processes of a killed `up` may take to let go of their ports. */
const CRASHED_PORT_MS = 7_000;

/**
 * Postgres, one director and some cells, each a process of its own, on loopback. Resolves when the database has heard every
 * cell. Throws an error with one line to show; then nothing is left running.
 */
export async function startLocalFleet(options: LocalFleetOptions): Promise<LocalFleet> {
  const { dataDir } = options;
  const claim = claimDataDir(dataDir);
  const undo: (() => Promise<void>)[] = [async () => claim.release()];
  const stop = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const ports = await choosePorts(options, claim.afterCrash ? CRASHED_PORT_MS : 0);
    const database = await openLocalDatabase(options.env, { dataDir, onRestart: options.onPostgresRestart });
    undo.push(database.stop);
    const director = originOf(ports[0] as number);
    const cells = ports.slice(1).map((port, index) => ({ id: `cell-${index + 1}`, url: originOf(port) }));
    await registerCells(options.env, database, cells);
    const plans = planFleet(options.env, database, director, cells);
    const children = plans.map((plan) => superviseChild(plan, options.events));
    undo.push(async () => {
      await Promise.all(children.map((child) => child.stop()));
    });
    await Promise.all(children.map((child) => child.listening));
    await allHeard(database, cells);
    const { selfHostedKey } = chosenSecrets(options.env, database.secrets);
    claim.publish({ director, cells, selfHostedKey, operatorUrl: database.urls.operator });
    return { director, cells, selfHostedKey, children, database, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function originOf(port: number): string {
  return `http://${HOST}:${port}`;
}

async function choosePorts({ port, cells }: LocalFleetOptions, patienceMs: number): Promise<number[]> {
  const wanted = Array.from({ length: cells + 1 }, (_, index) => (port === null ? null : port + index));
  const ports: number[] = [];
  for (const each of wanted) {
    if (each !== null) await waitForPort(HOST, each, patienceMs);
    ports.push(each ?? (await freePort(HOST)));
  }
  return ports;
}

/** What each process is told. Everything else of the environment, such as the key server, goes through to it. */
export function planFleet(
  env: Environment,
  { urls, secrets }: Pick<LocalDatabase, 'urls' | 'secrets'>,
  director: string,
  cells: readonly OwnCell[],
): ChildPlan[] {
  const { signingKey, selfHostedKey } = chosenSecrets(env, secrets);
  const common = {
    ...env,
    ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: signingKey,
    ORCA_RELAY_SELF_HOSTED_KEY: selfHostedKey,
    ORCA_RELAY_HOST: HOST,
  };
  return [
    {
      name: 'director',
      args: ['director'],
      env: {
        ...common,
        PORT: new URL(director).port,
        ORCA_RELAY_PUBLIC_URL: director,
        DATABASE_URL: urls.director,
      },
    },
    ...cells.map(({ id, url }) => ({
      name: id,
      args: ['cell'],
      env: {
        ...common,
        PORT: new URL(url).port,
        ORCA_RELAY_PUBLIC_URL: url,
        ORCA_RELAY_CELL_URL: url,
        ORCA_RELAY_CELL_ID: id,
        DATABASE_URL: urls.cell,
      },
    })),
  ];
}

async function registerCells(env: Environment, database: LocalDatabase, cells: readonly OwnCell[]): Promise<void> {
  const capacity = readCapacity(env);
  await asOperator(database.urls.operator, async (operator) => {
    for (const cell of cells) {
      const answer = await registerCell(operator, cell, capacity);
      if (answer !== 'ok') throw new Problem(`cannot register ${cell.id}: ${answer}`);
    }
  });
}

async function allHeard(database: LocalDatabase, cells: readonly OwnCell[]): Promise<void> {
  const deadline = performance.now() + HEARD_TIMEOUT_MS;
  await asOperator(database.urls.operator, async (operator) => {
    for (;;) {
      const rows = await operator.query<{ cell_id: string }>('select cell_id from relay_v1.fleet where ready');
      const heard = new Set(rows.map((row) => row.cell_id));
      const missing = cells.filter(({ id }) => !heard.has(id)).map(({ id }) => id);
      if (missing.length === 0) return;
      if (performance.now() > deadline) {
        throw new Problem(`no heartbeat of ${missing.join(', ')} after ${HEARD_TIMEOUT_MS / 1000} s: see the log`);
      }
      await new Promise((resolve) => setTimeout(resolve, HEARD_POLL_MS));
    }
  });
}
