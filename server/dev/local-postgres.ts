import path from 'node:path';
import { type Environment, readVariable } from '../config.ts';
import { migrate } from '../migrate.ts';
import { Problem } from '../problem.ts';
import { type LocalSecrets, localSecrets } from './local-secrets.ts';
import { type LoginUrls, loginRoles } from './login-roles.ts';
import { ensureDatabase, type RunningPostgres, startPostgres } from './postgres.ts';
import { isAlive } from './postgres-orphan.ts';

export interface LocalDatabase {
  /** For people: which server this is. */
  description: string;
  dataFolder: string | null;
  adopted: boolean;
  urls: LoginUrls;
  secrets: LocalSecrets;
  stop(): Promise<void>;
}

const DATABASE = 'orca_relay';
const WATCH_MS = 500;

export interface LocalDatabaseOptions {
  dataDir: string;
  /** The embedded server died and is up again on the same port, or could not be started. */
  onRestart?: (problem: string | null) => void;
  onMessage?: (message: string) => void;
}

/** DATABASE_URL or a server of our own, migrated, with login roles. Throws a {@link Problem}. */
export async function openLocalDatabase(env: Environment, options: LocalDatabaseOptions): Promise<LocalDatabase> {
  const { dataDir, onMessage } = options;
  const secrets = localSecrets(dataDir);
  const prepare = async (ownerUrl: string) => {
    await migrate(ownerUrl, onMessage ? { onMessage } : {});
    return loginRoles(ownerUrl, secrets);
  };
  if (env.DATABASE_URL) {
    const url = readVariable(env, 'DATABASE_URL');
    const { host, pathname } = new URL(url);
    const urls = await prepare(url);
    const description = `DATABASE_URL (${host}${pathname})`;
    return { description, dataFolder: null, adopted: false, urls, secrets, stop: async () => undefined };
  }
  const server = await startPostgres({ dataDir, durable: true });
  const watch = keepAlive(server, dataDir, options.onRestart);
  try {
    const urls = await prepare(await ensureDatabase(server, DATABASE));
    const { description, dataFolder, adopted } = server;
    return { description, dataFolder: shortPath(dataFolder), adopted, urls, secrets, stop: watch.stop };
  } catch (error) {
    await watch.stop();
    throw error;
  }
}

/** Relative where that is shorter to read. */
export function shortPath(folder: string): string {
  const relative = path.relative('', folder);
  return relative.startsWith('..') ? folder : relative;
}

/** Starts the server again on the same port when it is gone: processes find it where it was. */
function keepAlive(first: RunningPostgres, dataDir: string, onRestart?: (problem: string | null) => void) {
  const port = Number(new URL(first.url()).port);
  let server = first;
  let restarting: Promise<void> | null = null;
  const restart = async () => {
    try {
      server = await startPostgres({ dataDir, durable: true, port });
      onRestart?.(null);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      onRestart?.(error.message);
    } finally {
      restarting = null;
    }
  };
  const timer = setInterval(() => {
    if (!restarting && !isAlive(server.pid)) restarting = restart();
  }, WATCH_MS);
  return {
    stop: async () => {
      clearInterval(timer);
      await restarting;
      await server.stop();
    },
  };
}
