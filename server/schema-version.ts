import { type DatabaseError, toDatabaseError } from './database-errors.ts';
import { redactText } from './log.ts';

/** What `relay_v1.schema_version()` of this package answers. It rises with every change that a running process must wait for. */
export const SCHEMA_VERSION = 3;

export type Query = (text: string) => Promise<Record<string, unknown>[]>;

const NOT_THERE = new Set(['42883', '42P01', '3F000']);

/**
 * One line that says why this package cannot work on a database, null if it can. Throws a DatabaseError when the database
 * cannot be asked.
 */
export async function schemaProblem(query: Query): Promise<string | null> {
  const found = await firstRow(query, 'select relay_v1.schema_version() as version');
  if (found === null) return 'the database has no relay schema: run "orca-relay migrate"';
  const version = Number(found.version);
  if (version === SCHEMA_VERSION) return null;
  return version < SCHEMA_VERSION
    ? `the database has version ${version} of the schema, this version needs ${SCHEMA_VERSION}: run "orca-relay migrate"`
    : `the database has version ${version} of the schema, newer than the ${SCHEMA_VERSION} that this version knows: upgrade orca-relay`;
}

/** Null if what is asked for is not there. */
export async function firstRow<R = Record<string, unknown>>(query: Query, text: string): Promise<R | null> {
  try {
    return ((await query(text))[0] as R | undefined) ?? null;
  } catch (error) {
    const failure = toDatabaseError(error);
    if (NOT_THERE.has(failure.code ?? '')) return null;
    throw failure;
  }
}

/** One line for the terminal about a database that cannot be used. */
export function databaseProblem(failure: DatabaseError): string {
  const code = failure.code === undefined ? '' : ` (${failure.code})`;
  return failure.kind === 'unavailable' || failure.kind === 'busy'
    ? `the database of DATABASE_URL cannot be reached: ${redactText(failure.message)}${code}`
    : `the database of DATABASE_URL refuses: ${redactText(failure.message)}${code}`;
}
