import pg from 'pg';
import { type Environment, readVariable } from '../config.ts';
import { DATABASE_TIMEOUTS, toDatabaseError } from '../database.ts';
import { findUp } from '../dev/up-state.ts';
import { Problem } from '../problem.ts';
import { databaseProblem } from '../schema-version.ts';

/** The database cannot be asked now; another attempt may succeed. */
export class DatabaseAway extends Problem {}

const OPERATOR = 'relay_operator';
const STATEMENT_TIMEOUT_MS = 30_000;

/** DATABASE_URL, else the database of the `up` that runs on the data folder. Throws a {@link Problem}. */
export function findDatabase(env: Environment): string {
  if (env.DATABASE_URL) return readVariable(env, 'DATABASE_URL');
  const dataDir = readVariable(env, 'ORCA_RELAY_DATA_DIR') as string;
  const up = findUp(dataDir);
  if (up) return up.operatorUrl;
  throw new Problem(`no database: DATABASE_URL is not set and no "orca-relay up" runs on ${dataDir}`);
}

/**
 * A connection for a person's command, with the rights of the operator role. Warnings of the database go to the terminal,
 * each once. Throws a {@link Problem}, {@link DatabaseAway} if another attempt may succeed.
 */
export async function connectAsOperator(url: string, command: string, types: pg.CustomTypesConfig): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    application_name: `orca-relay/${command}`,
    connectionTimeoutMillis: DATABASE_TIMEOUTS.connect,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    query_timeout: STATEMENT_TIMEOUT_MS + DATABASE_TIMEOUTS.readMargin,
    types,
  });
  client.on('error', () => undefined);
  const said = new Set<string>();
  client.on('notice', ({ severity, message = '' }) => {
    if (severity !== 'WARNING' || said.has(message)) return;
    said.add(message);
    process.stderr.write(`orca-relay: warning: ${message}\n`);
  });
  try {
    await client.connect();
    // an owner's login gives up what an operator may not do
    await client.query(`set role ${OPERATOR}`);
    return client;
  } catch (error) {
    await client.end().catch(() => undefined);
    const failure = toDatabaseError(error);
    const problem = databaseProblem(failure);
    throw failure.retryable ? new DatabaseAway(problem) : new Problem(problem);
  }
}
