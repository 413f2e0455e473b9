import pg from 'pg';
import { inject, type ProvidedContext } from 'vitest';
import { relayTypes } from '../../server/database.ts';

export type RelayRole = 'relay_director' | 'relay_cell' | 'relay_operator' | 'relay_monitor';

export interface FreshDatabase {
  /** As the owner. */
  url: string;
  name: string;
  urlFor(role: RelayRole): string;
  /** As the owner; int8 arrives as a number, timestamptz as epoch milliseconds. */
  query<R = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>;
  /** Stops the database's clock at this instant. */
  setClock(at: Date | number): Promise<void>;
  /** Moves the database's clock for every session, running or stopped. */
  advanceClock(ms: number): Promise<void>;
  /** Of the database's clock, in epoch milliseconds. */
  now(): Promise<number>;
  drop(): Promise<void>;
}

let made = 0;

/** A clone of the migrated template, for one test file or one test. `drop()` it in `afterAll`. */
export async function freshDatabase(): Promise<FreshDatabase> {
  const problem = inject('templateError');
  if (problem) throw new Error(problem);
  return cloneTemplate({
    postgresUrl: inject('postgresUrl'),
    templateDatabase: inject('templateDatabase'),
    rolePassword: inject('rolePassword'),
  });
}

export type TemplateSource = Pick<ProvidedContext, 'postgresUrl' | 'templateDatabase' | 'rolePassword'>;

export async function cloneTemplate(source: TemplateSource): Promise<FreshDatabase> {
  const { postgresUrl, templateDatabase, rolePassword } = source;
  const asAdmin = (work: (admin: pg.Client) => Promise<unknown>) => onServer(postgresUrl, work);
  const name = `orca_relay_test_${process.pid}_${++made}`;
  await asAdmin((admin) => admin.query(`create database ${name} template ${templateDatabase}`));
  const url = withDatabase(postgresUrl, name);
  const pool = new pg.Pool({ connectionString: url.href, max: 4, types: relayTypes });
  pool.on('error', () => undefined);
  const query = async (text: string, values: readonly unknown[] = []) =>
    (await pool.query(text, [...values])).rows as never;
  return {
    url: url.href,
    name,
    urlFor: (role) => {
      const login = new URL(url);
      login.username = role;
      login.password = rolePassword;
      return login.href;
    },
    query,
    setClock: async (at) => query('select test_clock.freeze($1)', [new Date(at)]),
    advanceClock: async (ms) => query("select test_clock.advance($1 * interval '1 ms')", [ms]),
    now: async () => (await pool.query<{ now: number }>('select relay.now() as now')).rows[0]?.now ?? 0,
    drop: async () => {
      await pool.end();
      await asAdmin((admin) => admin.query(`drop database if exists ${name} with (force)`));
    },
  };
}

async function onServer(url: string, work: (admin: pg.Client) => Promise<unknown>): Promise<void> {
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  try {
    await work(admin);
  } finally {
    await admin.end();
  }
}

function withDatabase(serverUrl: string, name: string): URL {
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url;
}
