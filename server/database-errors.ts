import pg from 'pg';

/**
 * - `unavailable`: no server, or the connection broke. The statement may or may not have run.
 * - `timeout`: the server or this process gave the statement up.
 * - `busy`: a lock, a connection slot or a place in the pool was not to be had in time. Nothing was written.
 * - `misuse`: the call itself is wrong (RL001 to RL003, a bad argument, a missing right): never retry.
 * - `other`: anything else.
 */
export type DatabaseErrorKind = 'unavailable' | 'timeout' | 'busy' | 'misuse' | 'other';

export class DatabaseError extends Error {
  override readonly name = 'DatabaseError';
  readonly kind: DatabaseErrorKind;
  /** SQLSTATE or the system's error code. */
  readonly code?: string;

  constructor(kind: DatabaseErrorKind, message: string, options: { code?: string | undefined; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.kind = kind;
    if (options.code !== undefined) this.code = options.code;
  }

  /** Another attempt may succeed; whether the first one wrote something is for the caller to know. */
  get retryable(): boolean {
    return this.kind !== 'misuse' && this.kind !== 'other';
  }
}

const KIND_BY_CODE: Readonly<Record<string, DatabaseErrorKind>> = {
  '57014': 'timeout',
  '25P03': 'timeout',
  '25P04': 'timeout',
  '57P01': 'unavailable',
  '57P02': 'unavailable',
  '57P03': 'unavailable',
  '57P05': 'unavailable',
  // a server that became a standby in a failover
  '25006': 'unavailable',
  // a prepared statement outlived a change of its result type: a new connection plans it anew
  '0A000': 'unavailable',
  '26000': 'unavailable',
  // whether the commit came about is not known
  '40003': 'unavailable',
  '55P03': 'busy',
  '55006': 'busy',
  // two wrote the same key at once: whoever asks again finds it
  '23505': 'busy',
  '23P01': 'busy',
  // an attempt that the world overtook (apply_assign)
  RL101: 'busy',
  RL102: 'busy',
  RL103: 'busy',
};

const KIND_BY_CLASS: Readonly<Record<string, DatabaseErrorKind>> = {
  '08': 'unavailable',
  '40': 'busy',
  '53': 'busy',
  '58': 'unavailable',
  '22': 'misuse',
  '23': 'misuse',
  '42': 'misuse',
  RL: 'misuse',
};

const SYSTEM_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  // this process has no descriptor, port or buffer left just now
  'EMFILE',
  'ENFILE',
  'EADDRNOTAVAIL',
  'ENOBUFS',
  // written to in the moment of its end
  'ERR_STREAM_DESTROYED',
  'ERR_STREAM_WRITE_AFTER_END',
  'ERR_SOCKET_CLOSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENOENT',
]);

// pg has no codes for what it decides itself, only these texts
const KIND_BY_TEXT: readonly [text: RegExp, kind: DatabaseErrorKind][] = [
  [/timeout exceeded when trying to connect/i, 'busy'],
  [/query read timeout/i, 'timeout'],
  [/connection terminated|timeout expired|connection ended|not queryable|pool after calling end/i, 'unavailable'],
];

/** Sorts whatever pg threw; a DatabaseError passes through. */
export function toDatabaseError(error: unknown): DatabaseError {
  if (error instanceof DatabaseError) return error;
  const { message, code } = describe(error);
  const kind =
    error instanceof pg.DatabaseError && code !== undefined
      ? (KIND_BY_CODE[code] ?? KIND_BY_CLASS[code.slice(0, 2)] ?? 'other')
      : code !== undefined && SYSTEM_CODES.has(code)
        ? 'unavailable'
        : (KIND_BY_TEXT.find(([text]) => text.test(message))?.[1] ?? 'other');
  return new DatabaseError(kind, message, { code, cause: error });
}

function describe(error: unknown): { message: string; code?: string | undefined } {
  // Node reports a name with several addresses as an AggregateError without a message of its own
  const first = error instanceof AggregateError && error.errors.length > 0 ? error.errors[0] : error;
  if (!(first instanceof Error)) return { message: String(first) };
  const code = (first as { code?: unknown }).code;
  return { message: first.message || first.name, code: typeof code === 'string' ? code : undefined };
}
