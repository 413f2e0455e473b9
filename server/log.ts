import { createHash } from 'node:crypto';
import { type DestinationStream, type Level, pino } from 'pino';

export interface LogEntry {
  /** Event names are stable: operators' alerts match on them. */
  event: `orca_relay_${string}`;
  [field: string]: unknown;
}

/** JSON lines. Every line names its event; hosts appear as {@link hostDigest}, tokens and keys never. */
export interface Logger {
  debug(entry: LogEntry, message?: string): void;
  info(entry: LogEntry, message?: string): void;
  warn(entry: LogEntry, message?: string): void;
  error(entry: LogEntry, message?: string): void;
}

export interface LoggerOptions {
  role: string;
  cellId?: string;
  level?: Level | 'silent';
  destination?: DestinationStream;
}

const REDACTED = '[redacted]';

/**
 * Field names that must never reach a log, whatever a caller passes. A second line of defence: callers are meant to log
 * digests and reasons only.
 */
const SECRET_FIELDS = [
  'authorization',
  'token',
  'relayJwt',
  'inviteToken',
  'resumeToken',
  'credential',
  'connTicket',
  'controlResumeSecret',
  'lease',
  'assignmentLease',
  'hostProof',
  'signingKey',
  'selfHostedKey',
  'metricsKey',
  'databaseUrl',
  'password',
  'relayHostId',
  'relay_host_id',
  'userId',
  'user_id',
];

const SHAPES: readonly [pattern: RegExp, replacement: string][] = [
  [/(postgres(?:ql)?:\/\/[^:@/\s]*):[^@/\s]*@/gi, `$1:${REDACTED}@`],
  [/\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?/g, REDACTED],
  [/\bBearer\s+\S+/gi, `Bearer ${REDACTED}`],
];

/** Takes passwords of connection URLs, JWTs and bearer values out of a text that someone else composed, such as an error message. */
export function redactText(text: string): string {
  return SHAPES.reduce((left, [pattern, replacement]) => left.replace(pattern, replacement), text);
}

/** A number is a duration or a count under such a name (`stageMs.credential`), never a secret. */
function censored(value: unknown): unknown {
  return typeof value === 'number' ? value : REDACTED;
}

export function createLogger(options: LoggerOptions): Logger {
  const settings = {
    level: options.level ?? 'info',
    base: { role: options.role, ...(options.cellId === undefined ? {} : { cellId: options.cellId }) },
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor: censored },
    serializers: { error: describeError, err: describeError },
  };
  return pino(settings, options.destination ?? standardOutput());
}

let listening = false;

/**
 * Not pino's own stream: with a reader that has died (a killed parent) it retries the last lines for ever at exit, and the
 * process never ends. Lines that nobody reads are lost.
 */
function standardOutput(): DestinationStream {
  if (!listening) process.stdout.on('error', () => undefined);
  listening = true;
  return process.stdout;
}

/** What a log may say of an error: name, code and redacted message; the stack only of an error that nobody foresaw. */
export function describeError(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) return { message: redactText(String(error)) };
  const { code, kind } = error as { code?: unknown; kind?: unknown };
  return {
    name: error.name,
    message: redactText(error.message),
    ...(code === undefined ? {} : { code }),
    ...(kind === undefined ? {} : { kind }),
    ...(code === undefined && kind === undefined ? { stack: redactText(error.stack ?? '') } : {}),
  };
}

/** How logs name a host: the first 12 hex characters of a SHA-256, enough to follow one host and too few to find it. */
export function hostDigest(userId: string, relayHostId: string): string {
  return createHash('sha256').update(`${userId}\0${relayHostId}`).digest('hex').slice(0, 12);
}
