import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { freePort } from './ports.ts';
import { type Binaries, findBinaries } from './postgres-binaries.ts';
import { PostgresError } from './postgres-error.ts';
import { disownLockFile, isAlive, readPostmaster, servesFolder } from './postgres-orphan.ts';
import { giveTo, ownerOf, prepareFolder, type ServerUser, serverUser, unwritable } from './postgres-user.ts';

export { PostgresError } from './postgres-error.ts';

export interface RunningPostgres {
  /** As the owner (superuser), with its password. */
  url(database?: string): string;
  /** For people: where the server comes from. */
  description: string;
  dataFolder: string;
  /** True when a server that a killed parent left behind was taken over. */
  adopted: boolean;
  pid: number;
  stop(): Promise<void>;
}

export interface PostgresOptions {
  /** The cluster lies in `<dataDir>/postgres-<major>`, its password beside it, readable by this user alone. */
  dataDir: string;
  /** False: a throwaway server for tests, which may lose everything in a crash. */
  durable: boolean;
  port?: number;
  maxConnections?: number;
}

const OWNER = 'orca_relay';
const POLL_MS = 10;
/** A server that crashed replays its log first. */
const START_TIMEOUT_MS = 60_000;
const INITDB_TIMEOUT_MS = 60_000;
const ORPHAN_READY_TIMEOUT_MS = 5_000;
const FAST_STOP_MS = 5_000;
const IMMEDIATE_STOP_MS = 3_000;
const LEFTOVER_BACKENDS_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 2_000;
const INVALID_PASSWORD = '28P01';

/** Starts a private server on loopback, or takes over the one that runs on this folder. Throws {@link PostgresError}. */
export async function startPostgres(options: PostgresOptions): Promise<RunningPostgres> {
  const candidate = serverUser();
  const binaries = findBinaries(candidate);
  const home = prepareFolder(path.resolve(options.dataDir), candidate);
  const cluster: Cluster = {
    folder: path.join(home, `postgres-${binaries.major}`),
    passwordFile: path.join(home, `postgres-${binaries.major}.password`),
    logFile: path.join(home, `postgres-${binaries.major}.log`),
    binaries,
    user: candidate,
  };
  if (isCluster(cluster.folder)) cluster.user = ownerOf(cluster.folder, candidate);
  else createCluster(cluster, options.durable);
  const password = readPassword(cluster);
  const adopted = await adopt(cluster, password);
  if (adopted) return running(cluster, password, adopted, null);
  const child = await launch(cluster, options);
  const { pid, port } = readPostmaster(cluster.folder) as { pid: number; port: number };
  return running(cluster, password, { pid, port }, child);
}

interface Cluster {
  folder: string;
  passwordFile: string;
  logFile: string;
  binaries: Binaries;
  user: ServerUser;
}

interface Address {
  pid: number;
  port: number;
}

function running(cluster: Cluster, password: string, address: Address, child: ChildProcess | null): RunningPostgres {
  const { origin, major } = cluster.binaries;
  return {
    url: (database = 'postgres') => urlOf(address.port, password, database),
    description: `PostgreSQL ${major} (${origin}) on 127.0.0.1:${address.port}`,
    dataFolder: cluster.folder,
    adopted: child === null,
    pid: address.pid,
    stop: () => stopServer(cluster.folder, address.pid, child),
  };
}

function urlOf(port: number, password: string, database: string): string {
  return `postgres://${OWNER}:${password}@127.0.0.1:${port}/${database}`;
}

function isCluster(folder: string): boolean {
  if (!existsSync(folder)) return false;
  if (existsSync(path.join(folder, 'PG_VERSION'))) return true;
  if (readdirSync(folder).length === 0) return false;
  throw new PostgresError(`${folder} holds files but no database: empty it, or set ORCA_RELAY_DATA_DIR`);
}

/** initdb works beside the folder and the result is renamed, so that a killed initdb leaves nothing that looks finished. */
function createCluster(cluster: Cluster, durable: boolean): void {
  const { folder, user, binaries } = cluster;
  const scratch = makeScratch(folder);
  try {
    giveTo(scratch, user);
    const passwordFile = path.join(scratch, 'password');
    const password = randomBytes(24).toString('hex');
    writeFileSync(passwordFile, `${password}\n`, { mode: 0o600 });
    giveTo(passwordFile, user);
    const target = path.join(scratch, 'data');
    const args = ['-D', target, '-U', OWNER, '-A', 'scram-sha-256', `--pwfile=${passwordFile}`];
    const run = spawnSync(
      path.join(binaries.bin, 'initdb'),
      [...args, '-E', 'UTF8', '--locale=C', ...(durable ? [] : ['--no-sync'])],
      { ...user.ids, cwd: '/', encoding: 'utf8', timeout: INITDB_TIMEOUT_MS },
    );
    if (run.status !== 0) {
      const reason = run.error?.message ?? lastLine(run.stderr) ?? `exit status ${run.status}`;
      throw new PostgresError(`initdb could not make ${folder}: ${reason}`);
    }
    writeFileSync(cluster.passwordFile, password, { mode: 0o600 });
    rmSync(folder, { recursive: true, force: true });
    renameSync(target, folder);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function makeScratch(folder: string): string {
  try {
    mkdirSync(path.dirname(folder), { recursive: true });
    return mkdtempSync(`${folder}.new-`);
  } catch (error) {
    throw new PostgresError(unwritable(path.dirname(folder), error));
  }
}

function readPassword(cluster: Cluster): string {
  try {
    return readFileSync(cluster.passwordFile, 'utf8').trim();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new PostgresError(
      `the password of the database in ${cluster.folder} cannot be read (${code}: ${cluster.passwordFile}): restore that file, or remove both to start anew`,
    );
  }
}

/** Takes over a live server of this folder if it lets us in; a live one that does not is stopped. Null: nothing runs. */
async function adopt(cluster: Cluster, password: string): Promise<Address | null> {
  const found = readPostmaster(cluster.folder);
  if (!found) return null;
  if (!servesFolder(found.pid, cluster.folder)) {
    if (isAlive(found.pid)) disownLockFile(cluster.folder);
    return null;
  }
  const deadline = performance.now() + ORPHAN_READY_TIMEOUT_MS;
  while (isAlive(found.pid) && performance.now() < deadline) {
    const now = readPostmaster(cluster.folder);
    const answer = now?.ready ? await tryLogin(urlOf(now.port, password, 'postgres')) : 'silent';
    if (now && answer === 'welcome') return now;
    if (answer === 'refused') break;
    await sleep(POLL_MS * 10);
  }
  await stopServer(cluster.folder, found.pid, null);
  return null;
}

async function tryLogin(url: string): Promise<'welcome' | 'refused' | 'silent'> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: CONNECT_TIMEOUT_MS,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('select 1');
    return 'welcome';
  } catch (error) {
    return (error as pg.DatabaseError).code === INVALID_PASSWORD ? 'refused' : 'silent';
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function launch(cluster: Cluster, options: PostgresOptions): Promise<ChildProcess> {
  const deadline = performance.now() + LEFTOVER_BACKENDS_TIMEOUT_MS;
  for (;;) {
    const child = await spawnServer(cluster, options);
    if (await isReady(cluster, child)) return child;
    const reason = lastFatal(cluster.logFile);
    // backends of a killed postmaster need a moment to notice
    if (/shared memory block|lock file/.test(reason) && performance.now() < deadline) {
      await sleep(POLL_MS * 10);
      continue;
    }
    throw new PostgresError(`PostgreSQL did not start on ${cluster.folder}: ${reason} (see ${cluster.logFile})`);
  }
}

async function spawnServer(cluster: Cluster, options: PostgresOptions): Promise<ChildProcess> {
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
async function stopServer(folder: string, pid: number, child: ChildProcess | null): Promise<void> {
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

function lastLine(text: string): string | undefined {
  return text.trim().split('\n').at(-1) || undefined;
}

/** A folder for a throwaway server. */
export function temporaryDataDir(): string {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'orca-relay-postgres-'));
  // root's server runs as another user, who must get through to the cluster below, which is closed to all others
  chmodSync(folder, 0o755);
  return folder;
}

/** Creates a database unless it exists. */
export async function ensureDatabase(server: RunningPostgres, name: string): Promise<string> {
  const client = new pg.Client({ connectionString: server.url(), connectionTimeoutMillis: CONNECT_TIMEOUT_MS });
  await client.connect();
  try {
    const found = await client.query('select from pg_database where datname = $1', [name]);
    if (found.rowCount === 0) await client.query(`create database ${client.escapeIdentifier(name)}`);
  } finally {
    await client.end();
  }
  return server.url(name);
}
