import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import type { Binaries } from './postgres-binaries.ts';
import { PostgresError } from './postgres-error.ts';
import { giveTo, type ServerUser, unwritable } from './postgres-user.ts';

/** The owner of a private server: its superuser. */
export const CLUSTER_OWNER = 'orca_relay';

const INITDB_TIMEOUT_MS = 60_000;

/** A data folder and what lies beside it. */
export interface Cluster {
  folder: string;
  passwordFile: string;
  logFile: string;
  binaries: Binaries;
  user: ServerUser;
}

/** Throws a {@link PostgresError} for a folder of something else. */
export function isCluster(folder: string): boolean {
  if (!existsSync(folder)) return false;
  if (existsSync(path.join(folder, 'PG_VERSION'))) return true;
  if (readdirSync(folder).length === 0) return false;
  throw new PostgresError(`${folder} holds files but no database: empty it, or set ORCA_RELAY_DATA_DIR`);
}

/** initdb works beside the folder and the result is renamed, so that a killed initdb leaves nothing that looks finished. */
export function createCluster(cluster: Cluster, durable: boolean): void {
  const { folder, user, binaries } = cluster;
  const scratch = makeScratch(folder);
  try {
    giveTo(scratch, user);
    const passwordFile = path.join(scratch, 'password');
    const password = randomBytes(24).toString('hex');
    writeFileSync(passwordFile, `${password}\n`, { mode: 0o600 });
    giveTo(passwordFile, user);
    const target = path.join(scratch, 'data');
    const args = ['-D', target, '-U', CLUSTER_OWNER, '-A', 'scram-sha-256', `--pwfile=${passwordFile}`];
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

/** What a killed initdb left: nobody works longer on one than initdb may take. */
function removeAbandoned(prefix: string): void {
  const parent = path.dirname(prefix);
  for (const name of readdirSync(parent).filter((each) => each.startsWith(path.basename(prefix)))) {
    const scratch = path.join(parent, name);
    if (Date.now() - statSync(scratch).mtimeMs > INITDB_TIMEOUT_MS) rmSync(scratch, { recursive: true, force: true });
  }
}

function makeScratch(folder: string): string {
  try {
    mkdirSync(path.dirname(folder), { recursive: true });
    removeAbandoned(`${folder}.new-`);
    return mkdtempSync(`${folder}.new-`);
  } catch (error) {
    throw new PostgresError(unwritable(path.dirname(folder), error));
  }
}

export function readPassword(cluster: Cluster): string {
  try {
    return readFileSync(cluster.passwordFile, 'utf8').trim();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new PostgresError(
      `the password of the database in ${cluster.folder} cannot be read (${code}: ${cluster.passwordFile}): restore that file, or remove both to start anew`,
    );
  }
}

function lastLine(text: string): string | undefined {
  return text.trim().split('\n').at(-1) || undefined;
}
