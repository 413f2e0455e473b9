import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import pg from 'pg';
import { ensureDatabase, type RunningPostgres, startPostgres } from '../../../server/dev/postgres.ts';
import { migrate } from '../../../server/migrate.ts';
import { applyCurrent } from '../../global-setup.ts';
import { throwawayDataDir } from '../../support/throwaway-postgres.ts';
import { type FleetDatabase, freePort, type Role } from './fleet.ts';

/** A server of a test's own, which it may stop, kill and start again on the same port. */
export interface OwnPostgres extends FleetDatabase {
  server: RunningPostgres;
  /** Fast shutdown: backends are told, sessions end. */
  down(): Promise<void>;
  /** As `pg_ctl stop -m immediate`: the next start replays. */
  crash(): Promise<void>;
  up(): Promise<void>;
}

const ROLES: Role[] = ['relay_director', 'relay_cell', 'relay_operator', 'relay_monitor'];
const NAME = 'relay';

/** What is not committed yet belongs to the version under test. */
async function withCurrent(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await applyCurrent(client, url);
  } finally {
    await client.end();
  }
}

export async function startOwnPostgres(): Promise<OwnPostgres> {
  const dataDir = throwawayDataDir();
  // Durable: a crash must lose nothing that was committed.
  const options = { dataDir, durable: true, port: await freePort(), maxConnections: 100 };
  const rolePassword = randomBytes(12).toString('hex');
  let server = await startPostgres(options);
  const url = await ensureDatabase(server, NAME);
  await migrate(url);
  await withCurrent(url);
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  for (const role of ROLES) await pool.query(`alter role ${role} login password '${rolePassword}'`);

  return {
    get server() {
      return server;
    },
    url,
    urlFor(role) {
      const login = new URL(url);
      login.username = role;
      login.password = rolePassword;
      return login.href;
    },
    query: async (text, values = []) => (await pool.query(text, values)).rows,
    advanceClock() {
      throw new Error('this server keeps real time');
    },
    down: () => server.stop(),
    async crash() {
      process.kill(server.pid, 'SIGQUIT');
      await server.stop();
    },
    async up() {
      server = await startPostgres(options);
    },
    async drop() {
      await pool.end();
      await server.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}
