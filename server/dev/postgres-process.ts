import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './ports.ts';
import type { Cluster } from './postgres-cluster.ts';
import { PostgresError } from './postgres-error.ts';
import { readPostmaster, servesFolder } from './postgres-orphan.ts';
import { unwritable } from './postgres-user.ts';

export interface ServerOptions {
  /** False: a throwaway server for tests, which may lose everything in a crash. */
  durable: boolean;
  port?: number;
  maxConnections?: number;
}

const POLL_MS = 10;
/** A server that crashed replays its log first. */
const START_TIMEOUT_MS = 60_000;
const FAST_STOP_MS = 5_000;
const IMMEDIATE_STOP_MS = 3_000;
const LEFTOVER_BACKENDS_TIMEOUT_MS = 10_000;
const LEFTOVER_BACKENDS_RETRY_MS = 100;

/** Starts the server of a cluster and waits until it takes connections. Throws {@link PostgresError}. */
export async function launch(cluster: Cluster, options: ServerOptions): Promise<ChildProcess> {
  const deadline = performance.now() + LEFTOVER_BACKENDS_TIMEOUT_MS;
  for (;;) {
    const child = await spawnServer(cluster, options);
    if (await isReady(cluster, child)) return child;
    const reason = lastFatal(cluster.logFile);
    // backends of a killed postmaster need a moment to notice
    if (/shared memory block|lock file/.test(reason) && performance.now() < deadline) {
      await sleep(LEFTOVER_BACKENDS_RETRY_MS);
      continue;
    }
    throw new PostgresError(`PostgreSQL did not start on ${cluster.folder}: ${reason} (see ${cluster.logFile})`);
  }
}

async function spawnServer(cluster: Cluster, options: ServerOptions): Promise<ChildProcess> {
  const port = options.port ?? (await freePort('127.0.0.1'));
  const settings: Record<string, string | number> = {
    listen_addresses: '127.0.0.1',
    // a socket path is limited to 107 bytes, and nobody needs one
    unix_socket_directories: '',
    max_connections: options.maxConnections ?? 100,
    ...(options.durable ? {} : { fsync: 'off', full_page_writes: 'off', synchronous_commit: 'off' }),
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const log = openLog(cluster);
  try {
    const child = spawn(
      path.join(cluster.binaries.bin, 'postgres'),
      ['-D', cluster.folder, '-p', `${port}`, ...flags],
      {
        ...cluster.user.ids,
        cwd: '/',
        // Its own session: Ctrl-C reaches this process alone, which then stops the server in order. Its log is a file,
        // because a pipe would break with this process, and the server outlives a killed parent.
        detached: true,
        stdio: ['ignore', log, log],
      },
    );
    child.on('error', () => undefined);
    return child;
  } finally {
    closeSync(log);
  }
}

function openLog(cluster: Cluster): number {
  try {
    return openSync(cluster.logFile, 'w', 0o600);
  } catch (error) {
    throw new PostgresError(unwritable(path.dirname(cluster.logFile), error));
  }
}

async function isReady(cluster: Cluster, child: ChildProcess): Promise<boolean> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (child.exitCode === null && child.signalCode === null && child.pid !== undefined) {
    const now = readPostmaster(cluster.folder);
    if (now?.pid === child.pid && now.ready) {
      child.unref();
      return true;
    }
    if (performance.now() > deadline) {
      child.kill('SIGQUIT');
      throw new PostgresError(`PostgreSQL was not ready after ${START_TIMEOUT_MS / 1000} s (see ${cluster.logFile})`);
    }
    await sleep(POLL_MS);
  }
  return false;
}

/** Fast, then immediate: the latter costs the next start a replay, never a commit. */
export async function stopServer(folder: string, pid: number, child: ChildProcess | null): Promise<void> {
  const gone = () => (child ? child.exitCode !== null || child.signalCode !== null : !servesFolder(pid, folder));
  for (const [signal, patience] of [
    ['SIGINT', FAST_STOP_MS],
    ['SIGQUIT', IMMEDIATE_STOP_MS],
  ] as const) {
    if (gone()) return;
    try {
      process.kill(pid, signal);
    } catch {
      // it ended by itself meanwhile
    }
    const deadline = performance.now() + patience;
    while (!gone() && performance.now() < deadline) await sleep(POLL_MS);
  }
  if (!gone()) throw new PostgresError(`PostgreSQL (process ${pid}) on ${folder} does not stop`);
}

function lastFatal(logFile: string): string {
  const lines = readFileSync(logFile, 'utf8').trim().split('\n');
  // what a client was told while the server was starting is no reason
  const own = lines.filter((each) => !/the database system is/.test(each));
  const line = own.findLast((each) => /FATAL|PANIC|ERROR/.test(each)) ?? own.at(-1) ?? '';
  return line.replace(/^.*?(?:FATAL|PANIC|ERROR|LOG): +/, '') || 'no reason given';
}
