import { decodeJwt } from 'jose';
import { errorReply, hostTokenReply, type RelayTokenClaims, relayTokenClaims } from '../contract/http.ts';
import { renewalDelay } from './backoff.ts';
import { type Clock, deadline, orAborted, systemClock } from './clock.ts';
import type { HostNames } from './host-keys.ts';
import { type Fetch, postJson } from './http.ts';
import { CLIENT_LIMITS } from './limits.ts';
import type { Ports } from './ports.ts';

export interface RelayToken {
  relayToken: string;
  /** Epoch milliseconds. */
  expiresAt: number;
}

/**
 * Gets a relay token for this host from whoever issues them. Throw `RelayTokenError` with `final: true` when the user
 * has to act first; everything else that is thrown is tried again.
 */
export type RelayTokenSource = (host: HostNames, signal: AbortSignal) => Promise<RelayToken>;

export class RelayTokenError extends Error {
  readonly final: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(message: string, options: { final: boolean; retryAfterMs?: number | undefined }) {
    super(message);
    this.name = 'RelayTokenError';
    this.final = options.final;
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Tokens from a self-hosted relay's own `POST /v1/host-token`. */
export function selfHostedTokens(options: {
  relayOrigin: string;
  selfHostedKey: string;
  ports?: { fetch: Fetch; clock: Clock };
}): RelayTokenSource {
  return async (host, signal) => {
    const outcome = await postJson(options.ports ?? { fetch, clock: systemClock }, {
      url: `${options.relayOrigin}/v1/host-token`,
      body: host,
      bearer: options.selfHostedKey,
      timeoutMs: CLIENT_LIMITS.httpTimeoutMs,
      signal,
    });
    if (outcome.kind === 'unanswered') throw new RelayTokenError(outcome.reason, { final: false });
    const { status, body, retryAfterMs } = outcome;
    const reply = status === 200 ? hostTokenReply.safeParse(body) : undefined;
    if (reply?.success) return reply.data;
    const error = errorReply.safeParse(body);
    const final = status >= 400 && status < 500 && ![408, 425, 429].includes(status);
    throw new RelayTokenError(error.success ? error.data.error : `HTTP ${status}`, { final, retryAfterMs });
  };
}

/** Claims of a token that the holder takes at its word: the relay is the one that verifies it. */
export function readClaims(relayToken: string): RelayTokenClaims {
  return relayTokenClaims.parse(decodeJwt(relayToken));
}

/** The token in hand, and a fresh one when it is too near its end. One request at a time, however many ask. */
export class TokenKeeper {
  readonly #ports: Pick<Ports, 'clock' | 'random'>;
  readonly #source: RelayTokenSource;
  readonly #host: HostNames;
  #held: RelayToken | null = null;
  #fetching: { signal: AbortSignal; token: Promise<RelayToken> } | null = null;

  constructor(ports: Pick<Ports, 'clock' | 'random'>, source: RelayTokenSource, host: HostNames) {
    this.#ports = ports;
    this.#source = source;
    this.#host = host;
  }

  get held(): RelayToken | null {
    return this.#held;
  }

  /** What the relay refused is not offered to it again. */
  forget(): void {
    this.#held = null;
  }

  async current(signal: AbortSignal): Promise<RelayToken> {
    const held = this.#held;
    if (held && held.expiresAt - this.#ports.clock.now() > CLIENT_LIMITS.renewBeforeMs) return held;
    return this.fresh(signal);
  }

  fresh(signal: AbortSignal): Promise<RelayToken> {
    // A request that its asker has given up is nothing to wait for.
    if (this.#fetching && !this.#fetching.signal.aborted) return this.#fetching.token;
    const token = this.#fetch(signal).finally(() => {
      if (this.#fetching?.token === token) this.#fetching = null;
    });
    this.#fetching = { signal, token };
    return token;
  }

  /** Milliseconds until the token in hand should be replaced. */
  refreshDelay(): number {
    const remaining = (this.#held?.expiresAt ?? 0) - this.#ports.clock.now();
    return renewalDelay(remaining, this.#ports.random);
  }

  async #fetch(signal: AbortSignal): Promise<RelayToken> {
    const limit = deadline(this.#ports.clock, CLIENT_LIMITS.tokenTimeoutMs, signal);
    try {
      const token = await orAborted(this.#source(this.#host, limit.signal), limit.signal);
      if (readClaims(token.relayToken).relayHostId !== this.#host.relayHostId) {
        throw new RelayTokenError('the token names another host', { final: true });
      }
      this.#held = token;
      return token;
    } finally {
      limit.done();
    }
  }
}
