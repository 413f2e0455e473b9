import { z } from 'zod';
import { Problem } from './problem.ts';

export type Role = 'director' | 'cell' | 'combined';
/** Whether a director books seats on reserve cells: no, as a trial that changes no answer, or yes. */
export type ReservePlacement = 'off' | 'dry-run' | 'on';

/** Cells by name, or every one. */
export type FeedCells = 'all' | ReadonlySet<string>;

export interface LaneConfig {
  /** Calls to the database at once. */
  concurrency: number;
  /** Requests that may wait. */
  queueMax: number;
  waitMs: number;
  retryAfterSeconds: number;
}

export interface Config {
  role: Role;
  port: number;
  host: string;
  /** The director's origin for clients; on a cell its own, because it goes into the host's key proof. */
  publicUrl?: string;
  cellUrl?: string;
  cellId: string;
  region: string;
  /** Units: a control holds 1, a splice 2. */
  cellCapacity: number;
  connectionLimit: { hardCap: number; unobservedBound: number } | null;
  signingKey: string;
  auth: { issuer: string; jwksUrl: string; audience: string } | null;
  selfHostedKey: string | null;
  databaseUrl: string;
  poolMax: number;
  statementTimeoutMs: number;
  lanes: { placement: LaneConfig; sticky: LaneConfig };
  reservePlacement: ReservePlacement;
  /** Whose seat feeds a director reads. */
  seatFeedCells: FeedCells;
  /** How long a director keeps the seats of a cell whose feed fails. */
  ownerRetentionMs: number;
  publicAssignmentsEnabled: boolean;
  readinessGraceMs: { jwks: number; sql: number };
  /** False: a fast sender is not held back, and only the bounded queue stands before a slow receiver. */
  splicePause: boolean;
  metricsKey: string | null;
  logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  dataDir: string;
}

/** The message is one line: the variable, what it accepts, and what it held unless that is a secret. */
export class ConfigError extends Problem {
  override readonly name = 'ConfigError';
}

export type Environment = Readonly<Record<string, string | undefined>>;

interface Variable<T> {
  schema: z.ZodType<T>;
  accepts: string;
  /** Absent: the variable must be set. */
  fallback?: T;
  secret?: true;
}

const MAX_GRACE_MS = 3_600_000;
const MAX_CELL_CAPACITY = 100_000;
/** Units that a capped cell keeps back for hosts that rebind. */
const CONTROL_REBIND_RESERVE = 100;

function whole(min: number, max: number, fallback?: number): Variable<number> {
  return {
    schema: z.string().regex(/^\d+$/).transform(Number).pipe(z.int().min(min).max(max)),
    accepts: `a whole number from ${min} to ${max}`,
    ...(fallback === undefined ? {} : { fallback }),
  };
}

function oneOf<const V extends string>(values: readonly V[], fallback: V): Variable<V> {
  return { schema: z.enum(values), accepts: values.map((value) => `"${value}"`).join(', '), fallback };
}

function text(min: number, max: number, accepts: string, fallback?: string | null): Variable<string | null> {
  return { schema: z.string().min(min).max(max), accepts, ...(fallback === undefined ? {} : { fallback }) };
}

const LOOPBACK = new Set(['127.0.0.1', 'localhost', '[::1]']);

function isSafeUrl(value: string): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, hostname } = new URL(value);
  return protocol === 'https:' || (protocol === 'http:' && LOOPBACK.has(hostname));
}

const origin: Variable<string | null> = {
  schema: z.string().refine((value) => isSafeUrl(value) && new URL(value).origin === value),
  accepts: 'an https origin such as https://relay.example.com, without a path (http only on loopback)',
  fallback: null,
};

const flag = (fallback: boolean): Variable<boolean> => ({
  schema: z.enum(['true', 'false']).transform((value) => value === 'true'),
  accepts: '"true" or "false"',
  fallback,
});

function readFeedCells(text: string): FeedCells {
  return text === 'all' ? 'all' : new Set(text.split(',').map((name) => name.trim()));
}

const VARIABLES = {
  ORCA_RELAY_ROLE: oneOf(['combined', 'director', 'cell'], 'combined'),
  PORT: whole(0, 65_535, 8080),
  ORCA_RELAY_HOST: text(1, 255, 'an address to listen on', '0.0.0.0'),
  ORCA_RELAY_PUBLIC_URL: origin,
  ORCA_RELAY_CELL_URL: origin,
  ORCA_RELAY_CELL_ID: text(1, 128, 'a name of 1 to 128 characters', 'combined'),
  ORCA_RELAY_REGION: {
    schema: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
    accepts: 'a region name of lower-case letters, digits and dashes',
    fallback: 'us-central1',
  } satisfies Variable<string>,
  ORCA_RELAY_CELL_CAPACITY: whole(1, MAX_CELL_CAPACITY, 900),
  ORCA_RELAY_CELL_CONNECTION_HARD_CAP: optional(whole(CONTROL_REBIND_RESERVE + 2, MAX_CELL_CAPACITY)),
  ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND: optional(whole(0, MAX_CELL_CAPACITY)),
  ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: {
    schema: z.string().refine((value) => Buffer.byteLength(value) >= 32),
    accepts: 'a secret of at least 32 bytes, the same on every director and cell',
    secret: true,
  } satisfies Variable<string>,
  ORCA_RELAY_AUTH_ISSUER: text(1, 2048, 'the issuer of relay tokens', null),
  ORCA_RELAY_JWKS_URL: {
    schema: z.string().refine(isSafeUrl),
    accepts: 'the https URL of the issuer’s keys (http only on loopback)',
    fallback: null,
  } satisfies Variable<string | null>,
  ORCA_RELAY_AUTH_AUDIENCE: text(1, 2048, 'the audience of relay tokens', 'orca-relay'),
  ORCA_RELAY_SELF_HOSTED_KEY: {
    schema: z.string().regex(/^[\w-]{32,256}$/),
    accepts: 'a secret of 32 to 256 letters, digits, - and _ that a self-hosted desktop shows for its tokens',
    fallback: null,
    secret: true,
  } satisfies Variable<string | null>,
  DATABASE_URL: {
    schema: z.string().refine((value) => /^postgres(ql)?:\/\//.test(value) && URL.canParse(value)),
    accepts: 'a postgres:// URL',
    secret: true,
  } satisfies Variable<string>,
  ORCA_RELAY_DATABASE_POOL_MAX: optional(whole(1, 100)),
  ORCA_RELAY_POSTGRES_STATEMENT_TIMEOUT_MS: whole(1, 600_000, 5_000),
  ORCA_RELAY_READINESS_JWKS_GRACE_MS: whole(0, MAX_GRACE_MS, 900_000),
  ORCA_RELAY_READINESS_SQL_GRACE_MS: whole(0, MAX_GRACE_MS, 180_000),
  ORCA_RELAY_PUBLIC_ASSIGNMENTS_ENABLED: flag(true),
  ORCA_RELAY_PUBLIC_ASSIGNMENT_CONCURRENCY: whole(1, 64, 2),
  ORCA_RELAY_PUBLIC_ASSIGNMENT_QUEUE_MAX: whole(0, 4_096, 4_096),
  ORCA_RELAY_PUBLIC_ASSIGNMENT_WAIT_MS: whole(1, 60_000, 4_000),
  ORCA_RELAY_PUBLIC_ASSIGNMENT_RETRY_AFTER_SECONDS: whole(1, 3_600, 5),
  ORCA_RELAY_PUBLIC_STICKY_CONCURRENCY: whole(1, 64, 1),
  ORCA_RELAY_PUBLIC_STICKY_QUEUE_MAX: whole(0, 4_096, 4_096),
  ORCA_RELAY_PUBLIC_STICKY_WAIT_MS: whole(1, 60_000, 2_000),
  ORCA_RELAY_PUBLIC_STICKY_RETRY_AFTER_SECONDS: whole(1, 3_600, 2),
  ORCA_RELAY_RESERVE_PLACEMENT: oneOf(['off', 'dry-run', 'on'], 'on'),
  ORCA_RELAY_SHADOW_SEAT_FEED_CELLS: {
    schema: z
      .string()
      .regex(/^(?!.*(?:^|,)\s*(?:,|$))/)
      .transform(readFeedCells),
    accepts: '"all", or names of cells with commas between them',
    fallback: 'all',
  } satisfies Variable<FeedCells>,
  ORCA_RELAY_OWNER_RETENTION_MS: whole(0, 600_000, 60_000),
  ORCA_RELAY_SPLICE_PAUSE: oneOf(['on', 'off'], 'on'),
  ORCA_RELAY_METRICS_KEY: {
    schema: z.string().min(16).regex(/^\S+$/),
    accepts: 'a bearer key of at least 16 characters without spaces (unset: metrics on loopback only)',
    fallback: null,
    secret: true,
  } satisfies Variable<string | null>,
  ORCA_RELAY_LOG_LEVEL: oneOf(['debug', 'info', 'warn', 'error', 'silent'], 'info'),
  ORCA_RELAY_DATA_DIR: text(1, 4_096, 'a folder', './data/relay'),
} as const;

type VariableName = keyof typeof VARIABLES;
type ValueOf<N extends VariableName> = (typeof VARIABLES)[N] extends Variable<infer T> ? T : never;

/** Every variable that a process reads. */
export const VARIABLE_NAMES = Object.keys(VARIABLES);

function optional(variable: Variable<number>): Variable<number | null> {
  return { schema: variable.schema, accepts: variable.accepts, fallback: null };
}

/** Reads one variable, as the tools that need no whole configuration do. Throws {@link ConfigError}. */
export function readVariable<N extends VariableName>(env: Environment, name: N): ValueOf<N> {
  const variable = VARIABLES[name] as Variable<ValueOf<N>>;
  const raw = env[name];
  if (raw === undefined || raw === '') {
    if (!('fallback' in variable)) throw new ConfigError(`${name} is not set: it takes ${variable.accepts}`);
    return variable.fallback as ValueOf<N>;
  }
  const parsed = variable.schema.safeParse(raw);
  if (parsed.success) return parsed.data;
  const held = variable.secret ? '' : `, not ${JSON.stringify(raw.slice(0, 80))}`;
  throw new ConfigError(`${name} takes ${variable.accepts}${held}`);
}

/** The configuration of a process that serves. Throws {@link ConfigError}. */
export function readConfig(env: Environment): Config {
  const read = <N extends VariableName>(name: N) => readVariable(env, name);
  const role = read('ORCA_RELAY_ROLE');
  const publicUrl = read('ORCA_RELAY_PUBLIC_URL');
  const cellUrl = read('ORCA_RELAY_CELL_URL');
  const config: Config = {
    role,
    port: read('PORT'),
    host: read('ORCA_RELAY_HOST') as string,
    ...(publicUrl === null ? {} : { publicUrl }),
    ...(cellUrl === null ? {} : { cellUrl }),
    cellId: read('ORCA_RELAY_CELL_ID') as string,
    ...readCapacity(env),
    signingKey: read('ORCA_RELAY_ASSIGNMENT_SIGNING_KEY'),
    auth: readAuth(env),
    selfHostedKey: read('ORCA_RELAY_SELF_HOSTED_KEY'),
    databaseUrl: read('DATABASE_URL'),
    poolMax: read('ORCA_RELAY_DATABASE_POOL_MAX') ?? (role === 'director' ? 3 : 10),
    statementTimeoutMs: read('ORCA_RELAY_POSTGRES_STATEMENT_TIMEOUT_MS'),
    lanes: { placement: readLane(env, 'ASSIGNMENT'), sticky: readLane(env, 'STICKY') },
    reservePlacement: read('ORCA_RELAY_RESERVE_PLACEMENT'),
    seatFeedCells: read('ORCA_RELAY_SHADOW_SEAT_FEED_CELLS'),
    ownerRetentionMs: read('ORCA_RELAY_OWNER_RETENTION_MS'),
    publicAssignmentsEnabled: read('ORCA_RELAY_PUBLIC_ASSIGNMENTS_ENABLED'),
    readinessGraceMs: {
      jwks: read('ORCA_RELAY_READINESS_JWKS_GRACE_MS'),
      sql: read('ORCA_RELAY_READINESS_SQL_GRACE_MS'),
    },
    splicePause: read('ORCA_RELAY_SPLICE_PAUSE') === 'on',
    metricsKey: read('ORCA_RELAY_METRICS_KEY'),
    logLevel: read('ORCA_RELAY_LOG_LEVEL'),
    dataDir: read('ORCA_RELAY_DATA_DIR') as string,
  };
  checkLanesFitPool(config);
  return config;
}

/** What a cell is registered with, beside its name and origin. Throws {@link ConfigError}. */
export function readCapacity(env: Environment): Pick<Config, 'region' | 'cellCapacity' | 'connectionLimit'> {
  return {
    region: readVariable(env, 'ORCA_RELAY_REGION'),
    cellCapacity: readVariable(env, 'ORCA_RELAY_CELL_CAPACITY'),
    connectionLimit: readConnectionLimit(env),
  };
}

function readLane(env: Environment, lane: 'ASSIGNMENT' | 'STICKY'): LaneConfig {
  return {
    concurrency: readVariable(env, `ORCA_RELAY_PUBLIC_${lane}_CONCURRENCY`),
    queueMax: readVariable(env, `ORCA_RELAY_PUBLIC_${lane}_QUEUE_MAX`),
    waitMs: readVariable(env, `ORCA_RELAY_PUBLIC_${lane}_WAIT_MS`),
    retryAfterSeconds: readVariable(env, `ORCA_RELAY_PUBLIC_${lane}_RETRY_AFTER_SECONDS`),
  };
}

function readConnectionLimit(env: Environment): Config['connectionLimit'] {
  const hardCap = readVariable(env, 'ORCA_RELAY_CELL_CONNECTION_HARD_CAP');
  const unobservedBound = readVariable(env, 'ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND');
  if (hardCap === null && unobservedBound === null) return null;
  if (hardCap === null || unobservedBound === null) {
    throw new ConfigError(
      'ORCA_RELAY_CELL_CONNECTION_HARD_CAP and ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND are set both or neither',
    );
  }
  const most = hardCap - CONTROL_REBIND_RESERVE - 1;
  if (unobservedBound > most) {
    throw new ConfigError(
      `ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND takes at most ${most} under a hard cap of ${hardCap}`,
    );
  }
  return { hardCap, unobservedBound };
}

function readAuth(env: Environment): Config['auth'] {
  const issuer = readVariable(env, 'ORCA_RELAY_AUTH_ISSUER');
  const jwksUrl = readVariable(env, 'ORCA_RELAY_JWKS_URL');
  const audience = readVariable(env, 'ORCA_RELAY_AUTH_AUDIENCE') as string;
  if (issuer === null && jwksUrl === null) return null;
  if (issuer === null || jwksUrl === null) {
    throw new ConfigError('ORCA_RELAY_AUTH_ISSUER and ORCA_RELAY_JWKS_URL are set both or neither');
  }
  return { issuer, jwksUrl, audience };
}

function checkLanesFitPool({ role, poolMax, lanes }: Config): void {
  if (role === 'cell') return;
  const together = lanes.placement.concurrency + lanes.sticky.concurrency;
  if (together <= poolMax && lanes.placement.concurrency < poolMax) return;
  throw new ConfigError(
    `ORCA_RELAY_DATABASE_POOL_MAX takes at least ${Math.max(together, lanes.placement.concurrency + 1)}: the placement and sticky lanes hold that many connections, not ${poolMax}`,
  );
}
