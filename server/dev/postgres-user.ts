import { spawnSync } from 'node:child_process';
import { chownSync, mkdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { PostgresError } from './postgres-error.ts';

/** Where root keeps what the server's user must reach when the checkout or the data folder is closed to it. */
export const SHARED_STATE = '/var/lib/orca-relay';

export interface ServerUser {
  /** For `spawn`; empty when this process is no root and the server runs as the same user. */
  ids: { uid?: number; gid?: number };
  name: string;
}

const CANDIDATES = ['postgres', 'nobody'];

/** PostgreSQL refuses to run as root: root starts it as `postgres`, else as `nobody`. */
export function serverUser(): ServerUser {
  if (process.getuid?.() !== 0) return { ids: {}, name: 'the current user' };
  for (const name of CANDIDATES) {
    const uid = idOf('-u', name);
    const gid = idOf('-g', name);
    if (uid !== null && gid !== null && uid !== 0) return { ids: { uid, gid }, name };
  }
  throw new PostgresError('running as root, and there is no user "postgres" or "nobody" to run PostgreSQL as');
}

function idOf(kind: '-u' | '-g', name: string): number | null {
  const run = spawnSync('id', [kind, name], { encoding: 'utf8', timeout: 5_000 });
  return run.status === 0 ? Number(run.stdout) : null;
}

/**
 * Makes a folder and answers where it really is: below {@link SHARED_STATE} if the server's user cannot reach the wanted
 * place. Throws a {@link PostgresError} when it cannot be written.
 */
export function prepareFolder(wanted: string, user: ServerUser): string {
  makeFolder(wanted);
  if (user.ids.uid === undefined || canEnter(wanted, user)) return wanted;
  const moved = path.join(SHARED_STATE, `data${wanted.replaceAll(path.sep, '-')}`);
  makeFolder(moved);
  return moved;
}

function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw new PostgresError(unwritable(folder, error));
  }
}

export function unwritable(folder: string, error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return `cannot write the data folder ${folder} (${code ?? message}): set ORCA_RELAY_DATA_DIR to a folder that can be written`;
}

function canEnter(folder: string, user: ServerUser): boolean {
  const run = spawnSync('/bin/sh', ['-c', 'cd "$0"', folder], { ...user.ids, cwd: '/', timeout: 5_000 });
  return run.status === 0;
}

/** The user that owns an existing cluster: only that one may run it. */
export function ownerOf(folder: string, user: ServerUser): ServerUser {
  const { uid, gid } = statSync(folder);
  const self = process.getuid?.();
  if (self === undefined || uid === (user.ids.uid ?? self)) return user;
  if (self === 0 && uid !== 0) return { ids: { uid, gid }, name: `user ${uid}` };
  throw new PostgresError(
    `the database in ${folder} belongs to user ${uid}, not to ${user.name}: start as that user, or set ORCA_RELAY_DATA_DIR`,
  );
}

export function giveTo(pathname: string, user: ServerUser): void {
  if (user.ids.uid !== undefined) chownSync(pathname, user.ids.uid, user.ids.gid ?? user.ids.uid);
}
