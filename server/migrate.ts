import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Logger as MigrateLogger, migrate as runMigrations, type Settings } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import pg from 'pg';
import { DATABASE_TIMEOUTS, toDatabaseError } from './database.ts';
import { redactText } from './log.ts';
import { packageRoot } from './package-root.ts';
import { Problem } from './problem.ts';
import { databaseProblem, firstRow, type Query } from './schema-version.ts';

export class MigrationError extends Problem {
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
  const problem = await withClient(url, (client) => historyProblem(async (text) => (await client.query(text)).rows));
  if (problem !== null) throw new MigrationError(problem);
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

interface Migration {
  filename: string;
  hash: string;
}

/** Why the migrations of this package must not be applied to a database: somebody else's were, or newer ones. */
async function historyProblem(query: Query): Promise<string | null> {
  const found = await firstRow<Migration>(
    query,
    'select filename, hash from graphile_migrate.migrations order by filename desc limit 1',
  );
  if (found === null) return null;
  const own = committedMigrations();
  const number = Number(found.filename.slice(0, 6));
  const twin = own.find(({ filename }) => filename === found.filename);
  if (twin?.hash === found.hash) return null;
  return twin === undefined && number > own.length
    ? `the database is at migration ${number}, newer than the ${own.length} that this version knows: upgrade orca-relay`
    : `the database holds another migration ${number} than this version brings: a different build made it, use a new database`;
}

function committedMigrations(): Migration[] {
  const folder = path.join(migrationsFolder, 'committed');
  return readdirSync(folder)
    .filter((name) => /^\d{6}.*\.sql$/.test(name))
    .sort()
    .map((name) => ({
      filename: `${name.slice(0, 6)}.sql`,
      hash: /^--! Hash: (\S+)$/m.exec(readFileSync(path.join(folder, name), 'utf8'))?.[1] ?? '',
    }));
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
