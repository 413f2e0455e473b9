import pg from 'pg';
import { DatabaseError, toDatabaseError } from './database-errors.ts';
import type { Logger } from './log.ts';
import type { Metrics } from './metrics.ts';
import type { ParamsOf, RelayFunction, RelayFunctions, ResultOf } from './sql-interface.ts';

export { DatabaseError, type DatabaseErrorKind, toDatabaseError } from './database-errors.ts';

const SHAPES: { readonly [F in RelayFunction]: RelayFunctions[F]['shape'] } = {
  assign: 'row',
  resolve: 'row',
  explain_assign: 'value',
  regions: 'rows',
  cells: 'rows',
  changes_since: 'value',
  sweep_leases: 'value',
  sweep_credentials: 'value',
  sweep_changes: 'value',
  sweep_dead_cells: 'value',
  sweep_migrations: 'value',
  host_row: 'rows',
  epoch_base: 'value',
  record_seats: 'rows',
  register_cell: 'value',
  heartbeat: 'value',
  verify_seat: 'value',
  activate_control: 'row',
  renew_leases: 'rows',
  release_lease: 'value',
  reregister_controls: 'rows',
  cell_orders: 'rows',
  record_effective_mode: 'value',
  claim_trip_slot: 'value',
  create_invite: 'row',
  open_connection: 'row',
  release_invite: 'value',
  install_credential: 'row',
  install_status: 'row',
  confirm_resume: 'row',
  revoke_device: 'value',
};

export interface CallOptions {
  /** Gives up after this long, the wait for a connection included. */
  timeoutMs?: number;
}

export interface Database {
  /** One call of a function of `relay_v1`, parameters by name, `undefined` ones left to their defaults. Throws only {@link DatabaseError}. */
  call<F extends RelayFunction>(fn: F, params: ParamsOf<F>, options?: CallOptions): Promise<ResultOf<F>>;
  /** A statement of our own, such as a health check. Throws only {@link DatabaseError}. */
  query<R = Record<string, unknown>>(text: string, values?: readonly unknown[], options?: CallOptions): Promise<R[]>;
  /** Calls that wait for a connection. */
  waiters(): number;
  /** How long the longest of them has waited, in milliseconds; 0 without waiters. */
  oldestWaitMs(): number;
  readonly poolMax: number;
  close(): Promise<void>;
}

export interface DatabaseOptions {
  url: string;
  /** As pg_stat_activity shows it: `orca-relay/<role>/<cellId>`. */
  applicationName: string;
  poolMax: number;
  log: Logger;
  metrics?: Metrics;
  statementTimeoutMs?: number;
}

/** Milliseconds. The same bounds on a connection and on the wait for one: a caller is answered, well or ill, in time. */
export const DATABASE_TIMEOUTS = {
  connect: 2_000,
  statement: 5_000,
  lock: 1_000,
  idleInTransaction: 5_000,
  /** On top of the statement timeout, which the server keeps; beyond both the server is taken to be gone. */
  readMargin: 2_000,
  idleConnection: 30_000,
  close: 2_000,
} as const;

const INT8 = 20;
const TIMESTAMPTZ = 1184;

const parseTimestamp = pg.types.getTypeParser(TIMESTAMPTZ) as (text: string) => Date | number;

/** int8 as a number and timestamptz as epoch milliseconds, for our own connections alone: pg's registry is global. */
export const relayTypes: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') => {
    if (format !== 'binary' && oid === INT8) return Number;
    if (format !== 'binary' && oid === TIMESTAMPTZ) return (text: string) => Number(parseTimestamp(text));
    return pg.types.getTypeParser(oid, format as 'text');
  }) as pg.CustomTypesConfig['getTypeParser'],
};

export function openDatabase(options: DatabaseOptions): Database {
  const statementTimeoutMs = options.statementTimeoutMs ?? DATABASE_TIMEOUTS.statement;
  const pool = new pg.Pool({
    connectionString: options.url,
    application_name: options.applicationName,
    max: options.poolMax,
    connectionTimeoutMillis: DATABASE_TIMEOUTS.connect,
    idleTimeoutMillis: DATABASE_TIMEOUTS.idleConnection,
    statement_timeout: statementTimeoutMs,
    lock_timeout: DATABASE_TIMEOUTS.lock,
    idle_in_transaction_session_timeout: DATABASE_TIMEOUTS.idleInTransaction,
    query_timeout: statementTimeoutMs + DATABASE_TIMEOUTS.readMargin,
    keepAlive: true,
    types: relayTypes,
  });
  // Without these two, a backend that dies ends the process: an 'error' event that nobody hears is thrown.
  pool.on('error', (error) => connectionLost(error));
  pool.on('connect', (client) => client.on('error', (error: Error) => connectionLost(error)));
  const measures = measure(options.metrics, pool, options.poolMax);
  const connectionLost = (error: Error) => {
    measures?.lost.inc();
    options.log.debug({ event: 'orca_relay_database_connection_lost', error: toDatabaseError(error) });
  };
  const waits = new Set<{ since: number }>();
  const inUse = new Set<pg.PoolClient>();
  pool.on('acquire', (client) => inUse.add(client));
  pool.on('release', (_, client) => inUse.delete(client));

  const run = async (label: string, config: pg.QueryConfig, timeoutMs?: number): Promise<pg.QueryResult> => {
    const started = performance.now();
    let outcome: string = 'ok';
    try {
      const client = await acquire(pool, waits, timeoutMs);
      const left = timeoutMs === undefined ? undefined : Math.max(1, timeoutMs - (performance.now() - started));
      return await runOn(client, config, left);
    } catch (error) {
      const failure = toDatabaseError(error);
      outcome = failure.kind;
      throw failure;
    } finally {
      measures?.calls.inc({ function: label, outcome });
      measures?.seconds.observe({ function: label }, (performance.now() - started) / 1000);
    }
  };

  return {
    poolMax: options.poolMax,
    async call(fn, params, callOptions) {
      const shape = SHAPES[fn];
      const result = await run(fn, callConfig(fn, shape, params), callOptions?.timeoutMs);
      if (shape === 'rows') return result.rows as never;
      const row = result.rows[0] as Record<string, unknown> | undefined;
      if (!row) throw new DatabaseError('other', `relay_v1.${fn} answered no row`);
      return (shape === 'row' ? row : row.value) as never;
    },
    async query(text, values = [], queryOptions) {
      const result = await run('query', { text, values: values.map(toParameter) }, queryOptions?.timeoutMs);
      return result.rows as never;
    },
    waiters: () => waits.size,
    oldestWaitMs: () => {
      const oldest = waits.values().next().value;
      return oldest ? performance.now() - oldest.since : 0;
    },
    close: () => closePool(pool, inUse),
  };
}

/** One for each function and set of parameters. Their number is part of it: the server cuts a name at 63 bytes. */
const statementNames = new Map<string, string>();

function callConfig(fn: RelayFunction, shape: 'row' | 'value' | 'rows', params: object): pg.QueryConfig {
  const given = Object.entries(params).filter(([, value]) => value !== undefined);
  const args = given.map(([name], index) => `${name} => $${index + 1}`).join(', ');
  const text = shape === 'value' ? `select relay_v1.${fn}(${args}) as value` : `select * from relay_v1.${fn}(${args})`;
  const name = statementNames.get(text) ?? `${statementNames.size} ${fn}`;
  statementNames.set(text, name);
  // Named: the server parses and plans each of the few forms once a connection.
  return { name, text, values: given.map(([, value]) => toParameter(value)) };
}

/** Objects and arrays are jsonb in this interface; pg would turn an array into a Postgres array. */
function toParameter(value: unknown): unknown {
  if (value === null || typeof value !== 'object' || value instanceof Date || Buffer.isBuffer(value)) return value;
  return JSON.stringify(value);
}

async function acquire(pool: pg.Pool, waits: Set<{ since: number }>, timeoutMs?: number): Promise<pg.PoolClient> {
  const wait = { since: performance.now() };
  waits.add(wait);
  const connecting = pool.connect();
  try {
    if (timeoutMs === undefined || timeoutMs >= DATABASE_TIMEOUTS.connect) return await connecting;
    return await withDeadline(connecting, timeoutMs, () => new DatabaseError('busy', 'no connection in time'));
  } catch (error) {
    connecting.then((late) => late.release()).catch(() => undefined);
    throw error;
  } finally {
    waits.delete(wait);
  }
}

async function runOn(client: pg.PoolClient, config: pg.QueryConfig, timeoutMs?: number): Promise<pg.QueryResult> {
  let broken = true;
  try {
    // pg reads query_timeout from the query too; its types know it on the client alone
    const bounded = timeoutMs === undefined ? config : { ...config, query_timeout: timeoutMs };
    const result = await client.query(bounded as pg.QueryConfig);
    broken = false;
    return result;
  } catch (error) {
    const failure = toDatabaseError(error);
    // An error that the server reported leaves the connection usable, unless the server is leaving too.
    broken = !(error instanceof pg.DatabaseError) || failure.kind === 'unavailable';
    throw failure;
  } finally {
    client.release(broken);
  }
}

async function withDeadline<T>(work: Promise<T>, ms: number, error: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(error()), ms);
  });
  return Promise.race([work, deadline]).finally(() => clearTimeout(timer));
}

/** Bounded: queries get a moment to finish, then their connections are cut; `end` alone would wait for a black hole. */
async function closePool(pool: pg.Pool, inUse: Set<pg.PoolClient>): Promise<void> {
  if (pool.ending) return;
  await withDeadline(pool.end(), DATABASE_TIMEOUTS.close, () => new Error('late')).catch(() => {
    for (const client of inUse) (client as unknown as pg.Client).end().catch(() => undefined);
  });
}

function measure(metrics: Metrics | undefined, pool: pg.Pool, poolMax: number) {
  if (!metrics) return null;
  metrics.gauge('orca_relay_database_pool_size', 'Connections this process may hold').set(poolMax);
  metrics.gauge('orca_relay_database_pool_connections', 'Connections held', [], () => pool.totalCount);
  metrics.gauge('orca_relay_database_pool_waiters', 'Calls waiting for a connection', [], () => pool.waitingCount);
  return {
    calls: metrics.counter('orca_relay_database_calls_total', 'Calls to Postgres', ['function', 'outcome']),
    seconds: metrics.histogram('orca_relay_database_call_seconds', 'Duration of calls to Postgres', ['function']),
    lost: metrics.counter('orca_relay_database_connections_lost_total', 'Connections that broke'),
  };
}
