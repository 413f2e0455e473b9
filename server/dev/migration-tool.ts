import { rmSync } from 'node:fs';
import { commit, type Settings, uncommit, watch } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import { migrate, migrateSettings } from '../migrate.ts';
import { ensureDatabase, startPostgres, temporaryDataDir } from './postgres.ts';

/**
 * Works on db/migrations against a throwaway server:
 * `commit [message]` makes current.sql the next committed migration; `uncommit` takes the last one back to current.sql;
 * `amend` does both, so that an unreleased migration takes up changed function files; `watch` applies current.sql at every
 * change and shows its errors.
 */
const ACTIONS: Readonly<Record<string, (settings: Settings, message?: string) => Promise<void>>> = {
  commit: (settings, message) => commit(settings, message),
  uncommit: (settings) => uncommit(settings),
  amend: async (settings, message) => {
    await uncommit(settings);
    await commit(settings, message);
  },
  watch: async (settings) => {
    await watch(settings);
    await new Promise((resolve) => process.once('SIGINT', resolve));
  },
};

async function main([action = '', message]: readonly string[]): Promise<void> {
  const work = ACTIONS[action];
  if (!work) throw new Error(`usage: migration-tool ${Object.keys(ACTIONS).join(' | ')} [message]`);
  const dataDir = temporaryDataDir();
  const server = await startPostgres({ dataDir, durable: false });
  try {
    const url = await ensureDatabase(server, 'migrations');
    if (action !== 'commit') await migrate(url);
    const settings = {
      ...migrateSettings(url, (line) => console.log(line)),
      shadowConnectionString: await ensureDatabase(server, 'migrations_shadow'),
      rootConnectionString: server.url(),
    };
    await work(settings, message);
  } finally {
    clearAllPools();
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

main(process.argv.slice(2)).catch((error: Error) => {
  console.error(error.message);
  process.exitCode = 1;
});
