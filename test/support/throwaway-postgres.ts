import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { startPostgres, temporaryDataDir } from '../../server/dev/postgres.ts';
import { isAlive, readPostmaster, servesFolder } from '../../server/dev/postgres-orphan.ts';

const PREFIX = 'orca-relay-postgres-';
const OWNER_FILE = 'test-run.pid';
/** Many test files, each with the pools of several processes. */
const MAX_CONNECTIONS = 400;

/** A server that lives as long as a test run; what a killed run left behind is cleared away first. */
export async function startThrowawayPostgres(): Promise<{ url: string; stop: () => Promise<void> }> {
  clearLeftovers();
  const dataDir = throwawayDataDir();
  const server = await startPostgres({ dataDir, durable: false, maxConnections: MAX_CONNECTIONS });
  return {
    url: server.url(),
    stop: async () => {
      await server.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

/** A folder that the next test run clears away, server and all, if this process is killed. */
export function throwawayDataDir(): string {
  const dataDir = temporaryDataDir();
  writeFileSync(path.join(dataDir, OWNER_FILE), String(process.pid));
  return dataDir;
}

function clearLeftovers(): void {
  for (const name of readdirSync(os.tmpdir()).filter((entry) => entry.startsWith(PREFIX))) {
    const folder = path.join(os.tmpdir(), name);
    try {
      if (isAlive(Number(readFileSync(path.join(folder, OWNER_FILE), 'utf8')))) continue;
      for (const cluster of readdirSync(folder).filter((entry) => /^postgres-\d+$/.test(entry))) {
        const data = path.join(folder, cluster);
        const found = readPostmaster(data);
        if (found && servesFolder(found.pid, data)) process.kill(found.pid, 'SIGQUIT');
      }
      rmSync(folder, { recursive: true, force: true });
    } catch {
      // not a test run's folder, or somebody else's
    }
  }
}
