import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { commit, type Settings, uncommit, watch } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import { migrate, migrateSettings, migrationsFolder } from '../migrate.ts';
import { ensureDatabase, type RunningPostgres, startPostgres, temporaryDataDir } from './postgres.ts';

/**
 * Works on db/migrations against a throwaway server:
 * `commit [message]` makes current.sql the next committed migration; `uncommit` takes the last one back to current.sql;
 * `amend` does both, so that an unreleased migration takes up changed function files; `watch` applies current.sql at every
 * change and shows its errors.
 */
const ACTIONS: Readonly<Record<string, (server: RunningPostgres, message?: string) => Promise<void>>> = {
  commit: commitCurrent,
  uncommit: takeBack,
  amend: async (server, message) => {
    await takeBack(server);
    await commitCurrent(server, message);
  },
  watch: async (server) => {
    await watch(await settingsFor(server, 'watched'));
    await new Promise((resolve) => process.once('SIGINT', resolve));
  },
};

const currentFile = path.join(migrationsFolder, 'current.sql');
/** graphile-migrate ends its connections by itself after 200 ms, and ends the process if the server closes them first. */
const POOLS_CLOSE_MS = 300;

async function settingsFor(server: RunningPostgres, database: string): Promise<Settings> {
  return {
    ...migrateSettings(await ensureDatabase(server, database), (line) => console.log(line)),
    shadowConnectionString: await ensureDatabase(server, `${database}_shadow`),
    rootConnectionString: server.url(),
  };
}

async function commitCurrent(server: RunningPostgres, message?: string): Promise<void> {
  // after a failure graphile-migrate writes the file back with every include expanded
  const before = existsSync(currentFile) ? readFileSync(currentFile, 'utf8') : null;
  try {
    await commit(await settingsFor(server, 'committed'), message);
    makeReadable();
  } catch (error) {
    if (before !== null) writeFileSync(currentFile, before);
    throw error;
  }
}

/** graphile-migrate closes committed files to other users, who may be those that run a shared checkout. */
function makeReadable(): void {
  const folder = path.join(migrationsFolder, 'committed');
  for (const name of readdirSync(folder)) chmodSync(path.join(folder, name), 0o644);
}

async function takeBack(server: RunningPostgres): Promise<void> {
  const settings = await settingsFor(server, 'uncommitted');
  await migrate(settings.connectionString as string);
  await uncommit(settings);
}

async function main([action = '', message]: readonly string[]): Promise<void> {
  const work = ACTIONS[action];
  if (!work) throw new Error(`usage: migration-tool ${Object.keys(ACTIONS).join(' | ')} [message]`);
  const dataDir = temporaryDataDir();
  const server = await startPostgres({ dataDir, durable: false });
  try {
    await work(server, message);
  } finally {
    clearAllPools();
    await sleep(POOLS_CLOSE_MS);
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

main(process.argv.slice(2)).catch((error: Error) => {
  console.error(error.message);
  process.exitCode = 1;
});
