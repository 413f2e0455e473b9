import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Logger as MigrateLogger, migrate as runMigrations, type Settings } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import pg from 'pg';
import { DATABASE_TIMEOUTS, type DatabaseError, toDatabaseError } from './database.ts';
import { redactText } from './log.ts';
import { packageRoot } from './package-root.ts';

/** The message is one line for the person at the terminal. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError';
}

export const migrationsFolder: string = path.join(packageRoot, 'db', 'migrations');

export interface MigrateOptions {
  /** How long to wait for another process that migrates the same database. */
  lockWaitMs?: number;
  onMessage?: (message: string) => void;
}

const LOCK_WAIT_MS = 60_000;
const LOCK_RETRY_MS = { first: 50, most: 1_000 };
const LOCK_TAKEN = /Failed to get exclusive lock/;

/**
 * Brings a database to the version of this package. Safe to run from several processes at once: one migrates, the others
 * wait. Throws {@link MigrationError}, also for a database that is newer than this package.
 */
export async function migrate(url: string, options: MigrateOptions = {}): Promise<void> {
  await refuseForeignVersion(url);
  const settings = migrateSettings(url, options.onMessage);
  const deadline = performance.now() + (options.lockWaitMs ?? LOCK_WAIT_MS);
  for (let pause = LOCK_RETRY_MS.first; ; pause = Math.min(pause * 2, LOCK_RETRY_MS.most)) {
    try {
      await runMigrations(settings);
      break;
    } catch (error) {
      const { message } = error as Error;
      if (!LOCK_TAKEN.test(message)) throw new MigrationError(`migration failed: ${redactText(message)}`);
      if (performance.now() > deadline) {
        throw new MigrationError('another process has been migrating this database for too long: look for its lock');
      }
      await sleep(pause * (0.5 + Math.random()));
    } finally {
      // it keeps idle connections for a while, and ends the whole process if the server closes one meanwhile
      clearAllPools();
    }
  }
  await withClient(url, grantVersion);
}

/** Settings of graphile-migrate for tools that work on the migrations themselves. */
export function migrateSettings(url: string, onMessage?: (message: string) => void): Settings {
  return {
    connectionString: url,
    migrationsFolder,
    logger: new MigrateLogger(() => (level, message) => {
      if (level !== 'debug') onMessage?.(message);
    }),
  };
}

export interface SchemaVersion {
  filename: string;
  hash: string;
}

/** The last migration that this package brings; null if it has none. */
export function expectedVersion(): SchemaVersion | null {
  const last = readdirSync(path.join(migrationsFolder, 'committed'))
    .filter((name) => /^\d{6}.*\.sql$/.test(name))
    .sort()
    .at(-1);
  if (last === undefined) return null;
  const hash = /^--! Hash: (\S+)$/m.exec(readFileSync(path.join(migrationsFolder, 'committed', last), 'utf8'))?.[1];
  if (hash === undefined) throw new MigrationError(`${last} has no hash: reinstall the package`);
  return { filename: `${last.slice(0, 6)}.sql`, hash };
}

export type VersionVerdict = 'current' | 'older' | 'newer' | 'foreign';

export function compareVersions(found: SchemaVersion | null, expected: SchemaVersion | null): VersionVerdict {
  const [have, want] = [found?.filename ?? '', expected?.filename ?? ''];
  if (have !== want) return have < want ? 'older' : 'newer';
  return found?.hash === expected?.hash ? 'current' : 'foreign';
}

const VERDICT_TEXT: Readonly<Record<Exclude<VersionVerdict, 'current'>, (found: string, expected: string) => string>> =
  {
    older: (found, expected) => `the database is at ${found}, this version needs ${expected}: run "orca-relay migrate"`,
    newer: (found, expected) =>
      `the database is at ${found}, newer than the ${expected} that this version knows: upgrade orca-relay`,
    foreign: (found) =>
      `the database holds another ${found} than this version brings: it was made by a different build, use a new database`,
  };

/** One line that says why a database of this version cannot be used; null if it can. */
export function versionProblem(found: SchemaVersion | null, expected = expectedVersion()): string | null {
  const verdict = compareVersions(found, expected);
  if (verdict === 'current') return null;
  const name = (version: SchemaVersion | null) =>
    version ? `migration ${Number(version.filename.slice(0, 6))}` : 'no migration';
  return VERDICT_TEXT[verdict](name(found), name(expected));
}

type Query = (text: string) => Promise<Record<string, unknown>[]>;

const UNDEFINED_TABLE = '42P01';
const INVALID_SCHEMA = '3F000';

/** Throws a DatabaseError when the database cannot be asked. */
export async function foundVersion(query: Query): Promise<SchemaVersion | null> {
  try {
    const rows = await query('select filename, hash from graphile_migrate.migrations order by filename desc limit 1');
    return (rows[0] as SchemaVersion | undefined) ?? null;
  } catch (error) {
    const failure = toDatabaseError(error);
    if (failure.code === UNDEFINED_TABLE || failure.code === INVALID_SCHEMA) return null;
    throw failure;
  }
}

async function refuseForeignVersion(url: string): Promise<void> {
  const found = await withClient(url, (client) => foundVersion(async (text) => (await client.query(text)).rows));
  const verdict = compareVersions(found, expectedVersion());
  if (verdict === 'newer' || verdict === 'foreign') throw new MigrationError(versionProblem(found) as string);
}

/** Processes run with roles that own nothing; they may read which version they find. */
async function grantVersion(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ role: string }>(
    `select quote_ident(rolname) as role from pg_roles
     where rolname in ('relay_director', 'relay_cell', 'relay_operator', 'relay_monitor')
       and not has_table_privilege(oid, 'graphile_migrate.migrations', 'select')`,
  );
  if (rows.length === 0) return;
  const roles = rows.map(({ role }) => role).join(', ');
  await client.query(`grant usage on schema graphile_migrate to ${roles}`);
  await client.query(`grant select on graphile_migrate.migrations to ${roles}`);
}

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'orca-relay/schema',
    connectionTimeoutMillis: DATABASE_TIMEOUTS.connect,
    query_timeout: DATABASE_TIMEOUTS.statement,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await work(client);
  } catch (error) {
    const failure = toDatabaseError(error);
    throw new MigrationError(databaseProblem(failure));
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** One line for the terminal about a database that cannot be used. */
export function databaseProblem(failure: DatabaseError): string {
  const code = failure.code === undefined ? '' : ` (${failure.code})`;
  return failure.kind === 'unavailable' || failure.kind === 'busy'
    ? `the database of DATABASE_URL cannot be reached: ${redactText(failure.message)}${code}`
    : `the database of DATABASE_URL refuses: ${redactText(failure.message)}${code}`;
}
