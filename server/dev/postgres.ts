import type { ChildProcess } from 'node:child_process';
import { chmodSync, mkdtempSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { findBinaries } from './postgres-binaries.ts';
import { CLUSTER_OWNER, type Cluster, createCluster, isCluster, readPassword } from './postgres-cluster.ts';
import { disownLockFile, isAlive, readPostmaster, servesFolder } from './postgres-orphan.ts';
import { launch, type ServerOptions, stopServer } from './postgres-process.ts';
import { ownerOf, prepareFolder, serverUser } from './postgres-user.ts';

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

export interface PostgresOptions extends ServerOptions {
  /** The cluster lies in `<dataDir>/postgres-<major>`, its password beside it, readable by this user alone. */
  dataDir: string;
}

const ORPHAN_READY_TIMEOUT_MS = 5_000;
const ORPHAN_POLL_MS = 100;
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
  return `postgres://${CLUSTER_OWNER}:${password}@127.0.0.1:${port}/${database}`;
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
    await sleep(ORPHAN_POLL_MS);
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
