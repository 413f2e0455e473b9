import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import pg from 'pg';

export interface Assertion {
  number: number;
  name: string;
  ok: boolean;
  diagnostics: string[];
}

export interface TapRun {
  assertions: Assertion[];
  /** From `plan()`; null without one, which is a mistake in the file. */
  planned: number | null;
  /** A statement failed, and Postgres ran none after it. */
  error: string | null;
}

const BLOCK = 512;
const STATEMENT_TIMEOUT_MS = 20_000;

/** pgTAP's own SQL: servers of all versions lack the extension, and it is plain SQL and PL/pgSQL. */
function pgtapSql(): string {
  const packaged = path.dirname(createRequire(import.meta.url).resolve('@electric-sql/pglite-pgtap'));
  const tar = gunzipSync(readFileSync(path.join(packaged, 'pgtap.tar.gz')));
  for (let at = 0; at + BLOCK <= tar.length; ) {
    const name = tar.toString('utf8', at, at + 100).replace(/\0.*$/s, '');
    const size = Number.parseInt(tar.toString('utf8', at + 124, at + 136), 8) || 0;
    if (/(^|\/)pgtap--\d+\.\d+\.\d+\.sql$/.test(name)) return tar.toString('utf8', at + BLOCK, at + BLOCK + size);
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
  throw new Error('no pgTAP SQL in @electric-sql/pglite-pgtap');
}

export async function installPgtap(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(`begin; create schema tap; set local search_path = tap;\n${pgtapSql()}\n; commit`);
  } finally {
    await client.end();
  }
}

/** The text of a file, with what its lines `\ir other.sql` name in their place, as psql would have it. */
export function readTapFile(file: string): string {
  return readFileSync(file, 'utf8').replace(/^\\ir (\S+)$/gm, (_, name: string) =>
    readTapFile(path.join(path.dirname(file), name)),
  );
}

/** Runs one file in a transaction that is rolled back, with pgTAP's functions in the search path. */
export async function runTapFile(url: string, sql: string): Promise<TapRun> {
  const client = new pg.Client({ connectionString: url, statement_timeout: STATEMENT_TIMEOUT_MS });
  const lines: string[] = [];
  let error: string | null = null;
  await client.connect();
  try {
    await client.query('begin; set local search_path = tap, public');
    // row by row: the results of statements before a failing one are lost with the promise
    const query = new pg.Query({ text: sql, rowMode: 'array' } as never);
    query.on('row', (row: unknown) => lines.push(...textLines(row as unknown[])));
    const done = new Promise<void>((resolve, reject) => {
      query.on('end', () => resolve());
      query.on('error', reject);
    });
    client.query(query);
    await done;
  } catch (failure) {
    error = describeFailure(failure as pg.DatabaseError, sql);
  } finally {
    await client.query('rollback').catch(() => undefined);
    await client.end();
  }
  return { ...parseTap(lines), error };
}

function textLines(row: unknown[]): string[] {
  return row.flatMap((value) => (typeof value === 'string' ? value.split('\n') : []));
}

function describeFailure(error: pg.DatabaseError, sql: string): string {
  const line = error.position === undefined ? undefined : sql.slice(0, Number(error.position)).split('\n').length;
  return [error.message, error.detail, error.hint, error.where, line === undefined ? '' : `at line ${line}`]
    .filter(Boolean)
    .join('\n');
}

export function parseTap(lines: readonly string[]): { assertions: Assertion[]; planned: number | null } {
  const assertions: Assertion[] = [];
  let planned: number | null = null;
  for (const line of lines) {
    const plan = /^1\.\.(\d+)/.exec(line);
    const test = /^(not )?ok (\d+)(?: - (.*))?$/.exec(line);
    if (plan) planned = Number(plan[1]);
    else if (test) {
      assertions.push({ ok: test[1] === undefined, number: Number(test[2]), name: test[3] ?? '', diagnostics: [] });
    } else if (line.startsWith('#')) assertions.at(-1)?.diagnostics.push(line);
  }
  return { assertions, planned };
}
