import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { MigrationError, migrate } from '../../server/migrate.ts';
import { SCHEMA_VERSION, schemaProblem } from '../../server/schema-version.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

const GRAPHILE_LOCK = '4727445306447283';
let made = 0;
let name: string;
let url: string;

async function withClient<T>(at: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: at });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

const history = () =>
  withClient(
    url,
    async (client) => (await client.query('select filename, hash from graphile_migrate.migrations')).rows,
  );

beforeEach(async () => {
  name = `orca_relay_migrate_${process.pid}_${++made}`;
  const address = new URL(inject('postgresUrl'));
  await withClient(address.href, (admin) => admin.query(`create database ${name}`));
  address.pathname = `/${name}`;
  url = address.href;
});
afterEach(() => withClient(inject('postgresUrl'), (admin) => admin.query(`drop database ${name} with (force)`)));

test('four at once on an empty database: one migrates, the others wait, each migration is there once', async () => {
  await Promise.all([migrate(url), migrate(url), migrate(url), migrate(url)]);
  const once = await history();
  await migrate(url);
  expect(await history()).toEqual(once);
  expect(new Set(once.map((row) => row.filename)).size).toBe(once.length);
});

test('the wait for somebody else who migrates has a bound', async () => {
  await withClient(url, async (holder) => {
    await holder.query('select pg_advisory_lock($1)', [GRAPHILE_LOCK]);
    await expect(migrate(url, { lockWaitMs: 100 })).rejects.toThrow(/^another process has been migrating/);
  });
});

test('a lock that is let go in time is waited for', async () => {
  await withClient(url, async (holder) => {
    await holder.query('select pg_advisory_lock($1)', [GRAPHILE_LOCK]);
    const migrating = migrate(url);
    await holder.query('select pg_sleep(0.1)');
    await holder.query('select pg_advisory_unlock($1)', [GRAPHILE_LOCK]);
    await migrating;
  });
});

describe('one clear line', () => {
  test('for a database of a newer version', async () => {
    await migrate(url);
    await withClient(url, (client) =>
      client.query("insert into graphile_migrate.migrations (hash, filename) values ('sha1:later', '000999.sql')"),
    );
    await expect(migrate(url)).rejects.toThrow(
      /^the database is at migration 999, newer than the \d+ that this version/,
    );
  });

  test('for a database of another build', async () => {
    await migrate(url);
    await withClient(url, async (client) => {
      await client.query('delete from graphile_migrate.migrations');
      await client.query(
        "insert into graphile_migrate.migrations (hash, filename) values ('sha1:other', '000001.sql')",
      );
    });
    await expect(migrate(url)).rejects.toThrow(/a different build made it|newer than the 0/);
  });

  test('for a database that cannot be reached, without its password', async () => {
    const nobody = new URL(url);
    nobody.port = '1';
    const failure = await migrate(nobody.href).catch((error: Error) => error);
    expect(failure).toBeInstanceOf(MigrationError);
    expect((failure as Error).message).toMatch(/^the database of DATABASE_URL cannot be reached: .*\(ECONNREFUSED\)$/);
    expect((failure as Error).message).not.toContain(nobody.password);
  });

  test('for a wrong password', async () => {
    const wrong = new URL(url);
    wrong.password = 'wrong';
    await expect(migrate(wrong.href)).rejects.toThrow(/^the database of DATABASE_URL refuses: .*\(28P01\)$/);
  });
});

describe('a process asks which schema it finds', () => {
  let fresh: FreshDatabase;
  beforeAll(async () => {
    fresh = await freshDatabase();
  });
  afterAll(() => fresh.drop());

  test('none', async () => {
    const answer = await withClient(url, (client) => schemaProblem(async (text) => (await client.query(text)).rows));
    expect(answer).toBe('the database has no relay schema: run "orca-relay migrate"');
  });

  test('its own, an older, a newer', async () => {
    const pretend = (version: number) =>
      fresh.query(
        `create or replace function relay_v1.schema_version() returns int language sql as $$ select ${version} $$`,
      );
    expect(await schemaProblem(fresh.query)).toBeNull();
    await pretend(SCHEMA_VERSION - 1);
    expect(await schemaProblem(fresh.query)).toMatch(/needs \d+: run "orca-relay migrate"$/);
    await pretend(SCHEMA_VERSION + 1);
    expect(await schemaProblem(fresh.query)).toMatch(/newer than the \d+ that this version knows: upgrade orca-relay$/);
  });
});
