import { execFileSync } from 'node:child_process';
import { copyFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { relayTypes } from '../../../server/database.ts';
import { type RunningPostgres, startPostgres } from '../../../server/dev/postgres.ts';
import { giveTo, ownerOf, serverUser } from '../../../server/dev/postgres-user.ts';
import { throwawayDataDir } from '../../support/throwaway-postgres.ts';
import { freePort } from './fleet.ts';
import type { OwnPostgres } from './own-postgres.ts';
import { until } from './wait.ts';

/** A streaming standby of a server. */
export interface Standby {
  port: number;
  /** Resolves when it has replayed all that the primary has written by now. */
  caughtUp(): Promise<void>;
  /** It hears nothing more of its primary, which does not notice. */
  cutOff(): Promise<void>;
  /** It becomes a primary, on a timeline of its own. */
  promote(): Promise<void>;
  query(text: string, values?: unknown[]): Promise<Record<string, unknown>[]>;
  stop(): Promise<void>;
}

const COPY_TIMEOUT_MS = 30_000;

/** Copies the primary's files while it works, as a base backup does, and lets the copy follow it. */
export async function startStandby(primary: OwnPostgres): Promise<Standby> {
  const dataDir = throwawayDataDir();
  const port = await freePort();
  await copyCluster(primary, dataDir);
  const server: RunningPostgres = await startPostgres({ dataDir, durable: true, port, maxConnections: 100 });
  const pool = new pg.Pool({ connectionString: server.url('relay'), max: 2, types: relayTypes });
  pool.on('error', () => {});
  const query = async (text: string, values: unknown[] = []) => (await pool.query(text, values)).rows;
  return {
    port,
    query,
    async caughtUp() {
      const [at] = await primary.query('select pg_current_wal_lsn()::text as lsn');
      await until(
        'the standby caught up',
        () => query('select pg_last_wal_replay_lsn() >= $1::pg_lsn as reached', [at?.lsn]),
        ([row]) => row?.reached === true,
      );
    },
    async cutOff() {
      await query(`alter system set primary_conninfo = ''`);
      await query('select pg_reload_conf()');
      await until(
        'no receiver of WAL',
        () => query('select count(*) as receivers from pg_stat_wal_receiver'),
        ([row]) => row?.receivers === 0,
      );
    },
    async promote() {
      const [row] = await query('select pg_promote() as promoted');
      if (row?.promoted !== true) throw new Error('the standby was not promoted');
    },
    async stop() {
      await pool.end();
      await server.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

async function copyCluster(primary: OwnPostgres, dataDir: string): Promise<void> {
  const { dataFolder } = primary.server;
  const copy = path.join(dataDir, path.basename(dataFolder));
  const owner = ownerOf(dataFolder, serverUser());
  const add = (name: string, text: string) => {
    writeFileSync(path.join(copy, name), text);
    giveTo(path.join(copy, name), owner);
  };
  const client = new pg.Client({ connectionString: primary.server.url() });
  await client.connect();
  try {
    // Both ends of a backup belong to one session.
    await client.query(`select pg_backup_start('standby', true)`);
    // With owners: root's server runs as another user.
    execFileSync('cp', ['-a', dataFolder, copy], { timeout: COPY_TIMEOUT_MS });
    rmSync(path.join(copy, 'postmaster.pid'));
    const { rows } = await client.query<{ labelfile: string }>('select labelfile from pg_backup_stop(false)');
    add('backup_label', rows[0]?.labelfile ?? '');
  } finally {
    await client.end();
  }
  copyFileSync(`${dataFolder}.password`, `${copy}.password`);
  const { username, password, hostname, port } = new URL(primary.server.url());
  const source = `host=${hostname} port=${port} user=${username} password=${password}`;
  add('postgresql.auto.conf', `primary_conninfo = '${source}'\n`);
  add('standby.signal', '');
}
