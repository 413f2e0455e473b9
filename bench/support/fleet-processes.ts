import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { extname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { planFleet } from '../../server/dev/local-fleet.ts';
import { type LocalDatabase, openLocalDatabase } from '../../server/dev/local-postgres.ts';
import { chosenSecrets } from '../../server/dev/local-secrets.ts';
import { freePort } from '../../server/dev/ports.ts';
import { temporaryDataDir } from '../../server/dev/postgres.ts';
import { asOperator, registerCell } from '../../server/dev/register-cell.ts';
import { readSamples, sumOf } from './samples.ts';

const EXTENSION = extname(import.meta.filename);
const HOST = '127.0.0.1';
const HEARD_POLL_MS = 100;
const HEARD_TRIES = 300;

export interface FleetProcesses {
  director: string;
  cells: readonly string[];
  database: LocalDatabase;
  signingKey: string;
  selfHostedKey: string;
  stop(): Promise<void>;
}

/** A director and some cells, each a process, over a Postgres of their own; resolves when every cell was heard. */
export async function startFleetProcesses(cellCount: number, env: NodeJS.ProcessEnv): Promise<FleetProcesses> {
  const dataDir = temporaryDataDir();
  const all = { ...process.env, ...env };
  const database = await openLocalDatabase(all, { dataDir });
  const director = await newOrigin();
  const cells: { id: string; url: string }[] = [];
  for (let n = 1; n <= cellCount; n++) cells.push({ id: `cell-${n}`, url: await newOrigin() });
  const capacity = { region: 'us-central1', cellCapacity: 100_000, connectionLimit: null };
  await asOperator(database.urls.operator, async (operator) => {
    for (const cell of cells) await registerCell(operator, cell, capacity);
  });
  const children = planFleet(all, database, director, cells).map((plan) =>
    fork(new URL(`../../server/cli${EXTENSION}`, import.meta.url), plan.args, {
      env: plan.env,
      execArgv: EXTENSION === '.ts' ? ['--import', 'tsx'] : [],
    }),
  );
  await Promise.all(children.map(listening));
  for (const { url } of cells) await heard(url);
  return {
    director,
    cells: cells.map(({ id }) => id),
    database,
    ...chosenSecrets(all, database.secrets),
    async stop() {
      await Promise.all(children.map(end));
      await database.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

async function newOrigin(): Promise<string> {
  return `http://${HOST}:${await freePort(HOST)}`;
}

async function listening(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`a process of the fleet ended with ${code}`);
  });
  ended.catch(() => undefined);
  await Promise.race([once(child, 'message'), ended]);
}

async function heard(cell: string): Promise<void> {
  for (let tries = 0; tries < HEARD_TRIES; tries++) {
    if (sumOf(await readSamples(cell), 'orca_relay_heartbeats_total', 'answer', 'ok') > 0) return;
    await sleep(HEARD_POLL_MS);
  }
  throw new Error(`${cell} was not heard`);
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}
