import Table from 'cli-table3';
import pg from 'pg';
import type { Environment } from './config.ts';
import { toDatabaseError } from './database.ts';
import { connectAsOperator, findDatabase } from './operator/session.ts';
import { Problem } from './problem.ts';
import { databaseProblem } from './schema-version.ts';

/** Values as the server writes them, like psql. */
const asText: pg.CustomTypesConfig = { getTypeParser: () => (text: string) => text };

export interface SqlOptions {
  json?: boolean;
  /** Of the terminal; rows that are wider are shown a column a line. */
  columns?: number | undefined;
}

/**
 * Runs statements as the operator role and prints what they answer. Uses DATABASE_URL, else the `up` that runs on the data
 * folder. Throws a {@link Problem} with the server's own words.
 */
export async function runSql(text: string, options: SqlOptions, env: Environment): Promise<string> {
  const client = await connectAsOperator(findDatabase(env), 'sql', asText);
  try {
    const answered = await client.query({ text, rowMode: 'array' });
    const results = (Array.isArray(answered) ? answered : [answered]) as pg.QueryArrayResult[];
    return results.map((result) => (options.json ? toJson(result) : toText(result, options.columns))).join('\n');
  } catch (error) {
    throw new Problem(describe(error as pg.DatabaseError, text));
  } finally {
    await client.end().catch(() => undefined);
  }
}

function toText({ fields, rows, command, rowCount }: pg.QueryArrayResult, columns?: number): string {
  if (fields.length === 0) return rowCount === null ? command : `${command} ${rowCount}`;
  const names = fields.map(({ name }) => name);
  const values = rows as (string | null)[][];
  const count = `(${rows.length} ${rows.length === 1 ? 'row' : 'rows'})`;
  const table = toTable(names, values);
  const fits = columns === undefined || (table.split('\n', 1)[0] as string).length <= columns;
  return `${fits || values.length === 0 ? table : values.map((row) => toRecord(names, row)).join('\n\n')}\n${count}`;
}

/** Lines between rows would double the height. */
const COMPACT = { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' };

function toTable(names: string[], rows: (string | null)[][]): string {
  const table = new Table({ head: names, style: { head: [], border: [] }, chars: COMPACT });
  for (const row of rows) table.push(row.map((value) => value ?? ''));
  return table.toString();
}

function toRecord(names: string[], row: (string | null)[]): string {
  const width = Math.max(...names.map((name) => name.length));
  return names.map((name, index) => `${name.padEnd(width)}  ${row[index] ?? ''}`).join('\n');
}

function toJson({ fields, rows }: pg.QueryArrayResult): string {
  return (rows as (string | null)[][])
    .map((row) => JSON.stringify(Object.fromEntries(fields.map(({ name }, index) => [name, row[index] ?? null]))))
    .join('\n');
}

function describe(error: pg.DatabaseError, text: string): string {
  const failure = toDatabaseError(error);
  if (!(error instanceof pg.DatabaseError)) return databaseProblem(failure);
  const line = error.position === undefined ? null : text.slice(0, Number(error.position) - 1).split('\n').length;
  const where = line === null || line === 1 ? '' : ` at line ${line}`;
  const hint = error.hint === undefined ? '' : ` (hint: ${error.hint})`;
  return `${error.message}${where}${hint} [${failure.code}]`;
}
