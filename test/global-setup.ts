import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { compile } from 'graphile-migrate';
import pg from 'pg';
import type { ProvidedContext } from 'vitest';
import { migrate, migrateSettings, migrationsFolder } from '../server/migrate.ts';
import { installTestClock } from './support/test-clock.ts';
import { startThrowawayPostgres } from './support/throwaway-postgres.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The server's owner, on its maintenance database. */
    postgresUrl: string;
    templateDatabase: string;
    /** Of the relay roles, for this run. */
    rolePassword: string;
    /** Why the template could not be made: tests without a database run all the same. */
    templateError: string;
  }
}

export const RELAY_ROLES = ['relay_director', 'relay_cell', 'relay_operator', 'relay_monitor'] as const;

/** Takes what tests are given; vitest's own does. */
export interface Provider {
  provide<K extends keyof ProvidedContext & string>(key: K, value: ProvidedContext[K]): void;
}

/** One throwaway server (or the one of ORCA_RELAY_TEST_POSTGRES_URL) and one migrated template for the whole run. */
export async function setup(project: Provider): Promise<() => Promise<void>> {
  const given = process.env.ORCA_RELAY_TEST_POSTGRES_URL;
  const server = given ? { url: given, stop: async () => undefined } : await startThrowawayPostgres();
  const template = `orca_relay_template_${process.pid}`;
  const rolePassword = randomBytes(12).toString('hex');
  const admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
  await admin.query(`create database ${template}`);
  const error = await makeTemplate(admin, databaseUrl(server.url, template), rolePassword).then(
    () => '',
    (failure: Error) => failure.message,
  );
  if (error) console.error(`\nThe test template could not be made, tests that need it will fail:\n${error}\n`);
  await waitUntilUnused(admin, template);
  project.provide('postgresUrl', server.url);
  project.provide('templateDatabase', template);
  project.provide('rolePassword', rolePassword);
  project.provide('templateError', error);
  return async () => {
    await admin.query(`drop database if exists ${template} with (force)`);
    await admin.end();
    await server.stop();
  };
}

async function makeTemplate(admin: pg.Client, url: string, rolePassword: string): Promise<void> {
  await migrate(url);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await applyCurrent(client, url);
    if (process.env.ORCA_RELAY_TEST_MUTATION) await client.query(process.env.ORCA_RELAY_TEST_MUTATION);
    await installTestClock(client);
    const { rows } = await admin.query<{ rolname: string }>('select rolname from pg_roles where rolname = any($1)', [
      RELAY_ROLES,
    ]);
    for (const { rolname } of rows) await admin.query(`alter role ${rolname} login password '${rolePassword}'`);
  } finally {
    await client.end();
  }
}

/** What is not committed yet belongs to the version under test. */
export async function applyCurrent(client: pg.Client, url: string): Promise<void> {
  const file = path.join(migrationsFolder, 'current.sql');
  if (!existsSync(file)) return;
  const sql = await compile(migrateSettings(url), readFileSync(file, 'utf8'), { filename: file });
  try {
    await client.query(`begin;\n${sql}\n;commit`);
  } catch (error) {
    throw new Error(`current.sql: ${whereInSql(sql, error as pg.DatabaseError)}`);
  }
}

function whereInSql(sql: string, error: pg.DatabaseError): string {
  const detail = [error.message, error.detail, error.hint, error.where].filter(Boolean).join('\n  ');
  if (error.position === undefined) return detail;
  const before = sql.slice(0, Number(error.position) - 'begin;\n'.length);
  const included = [...before.matchAll(/^--! Included (\S+)$/gm)].at(-1)?.[1] ?? 'current.sql';
  return `${detail}\n  in ${included}, at: ${sql.split('\n')[before.split('\n').length - 1]?.trim()}`;
}

/** Postgres copies a template only while nobody is connected to it. */
async function waitUntilUnused(admin: pg.Client, template: string): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const { rowCount } = await admin.query('select from pg_stat_activity where datname = $1', [template]);
    if (rowCount === 0) return;
    await sleep(20);
  }
  throw new Error(`connections to ${template} stay open`);
}

function databaseUrl(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}
