import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from 'jose';
import { type Clock, systemClock } from './clock.ts';

/**
 * The key server's public keys. Once read they are kept through any outage of the key server: an old key set is refreshed
 * beside the requests that use it, and only a key nobody has seen yet is waited for.
 */

const FETCH_TIMEOUT_MS = 2_000;
const REFRESH_AFTER_MS = 10 * 60_000;
/**
 * After a successful read, unknown key ids ask the key server again at most this often. Short: a token refused meanwhile
 * is refused for good, since desktops give up on 401.
 */
const UNKNOWN_KEY_COOLDOWN_MS = 5_000;
/** After a failed read, nobody asks again for this long: a flood of tokens is not a flood of fetches. */
const FAILURE_COOLDOWN_MS = 1_000;
const MAX_KEY_SET_BYTES = 262_144;

export type KeySetFailure = 'jwks_fetch_failed' | 'jwks_http_failed' | 'jwks_timed_out';

/** The key server could not be asked, so nothing is known about the token: a retryable refusal, never a 401. */
export class KeysUnavailableError extends Error {
  readonly reason: KeySetFailure;

  constructor(reason: KeySetFailure, cause?: unknown) {
    super(reason, { cause });
    this.name = 'KeysUnavailableError';
    this.reason = reason;
  }
}

export interface KeySet {
  /** @throws {KeysUnavailableError} when the key is not known and the key server does not answer */
  readonly keyFor: JWTVerifyGetKey;
  /** True once any key set was read. */
  loaded(): boolean;
  /** Asks the key server now (2 s at most), for readiness. Null when it answered with a key set. */
  probe(): Promise<KeySetFailure | null>;
}

export function createKeySet(url: string, clock: Clock = systemClock): KeySet {
  let failed: { at: number; error: KeysUnavailableError } | null = null;
  let refreshedAt = Number.NEGATIVE_INFINITY;

  async function fetchBounded(href: string, init: RequestInit): Promise<Response> {
    if (failed && clock.now() - failed.at < FAILURE_COOLDOWN_MS) throw failed.error;
    try {
      const body = await readBounded(await fetch(href, init));
      failed = null;
      return body;
    } catch (cause) {
      const error = cause instanceof KeysUnavailableError ? cause : new KeysUnavailableError(failureOf(cause), cause);
      failed = { at: clock.now(), error };
      throw error;
    }
  }

  const remote = createRemoteJWKSet(new URL(url), {
    timeoutDuration: FETCH_TIMEOUT_MS,
    cooldownDuration: UNKNOWN_KEY_COOLDOWN_MS,
    // Staleness is ours to judge: the library would discard a key set that it cannot renew.
    cacheMaxAge: Number.POSITIVE_INFINITY,
    [customFetch]: fetchBounded,
  });

  async function refresh(): Promise<KeySetFailure | null> {
    refreshedAt = clock.now();
    try {
      await remote.reload();
      return null;
    } catch (error) {
      return asUnavailable(error).reason;
    }
  }

  return {
    async keyFor(header, token) {
      if (remote.jwks() && clock.now() - refreshedAt >= REFRESH_AFTER_MS) void refresh();
      try {
        return await remote(header, token);
      } catch (error) {
        if (isAboutTheToken(error)) throw error;
        throw asUnavailable(error);
      }
    },
    loaded: () => remote.jwks() !== undefined,
    probe: refresh,
  };
}

async function readBounded(response: Response): Promise<Response> {
  if (response.status !== 200) {
    await response.body?.cancel();
    throw new KeysUnavailableError('jwks_http_failed');
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > MAX_KEY_SET_BYTES) throw new KeysUnavailableError('jwks_http_failed');
    chunks.push(chunk);
  }
  return new Response(Buffer.concat(chunks), { status: 200 });
}

function failureOf(error: unknown): KeySetFailure {
  const name = error instanceof Error ? error.name : '';
  return name === 'TimeoutError' || name === 'AbortError' ? 'jwks_timed_out' : 'jwks_fetch_failed';
}

function isAboutTheToken(error: unknown): boolean {
  return (
    error instanceof errors.JWKSNoMatchingKey ||
    error instanceof errors.JWKSMultipleMatchingKeys ||
    error instanceof errors.JOSENotSupported
  );
}

function asUnavailable(error: unknown): KeysUnavailableError {
  if (error instanceof KeysUnavailableError) return error;
  if (error instanceof errors.JWKSTimeout) return new KeysUnavailableError('jwks_timed_out', error);
  return new KeysUnavailableError('jwks_http_failed', error);
}
