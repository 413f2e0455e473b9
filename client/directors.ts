import { type AssignReply, assignReply, errorReply, type ResolveReply, resolveReply } from '../contract/http.ts';
import { isOrigin } from '../contract/scalars.ts';
import { between } from './backoff.ts';
import { sleep } from './clock.ts';
import { type HttpOutcome, type HttpPost, postJson } from './http.ts';
import { CLIENT_LIMITS } from './limits.ts';
import type { Ports } from './ports.ts';

/** Worth another try, not before `retryAfterMs` if it is there. */
export interface Retry {
  kind: 'retry';
  reason: string;
  retryAfterMs?: number;
  /** No director gave an answer of its own. */
  unanswered: boolean;
}
/** Final until something changes: trying again would be answered the same. */
export interface Refused {
  kind: 'refused';
  status: number;
  error: string;
}
export type AssignOutcome = ({ kind: 'granted' } & AssignReply) | Retry | Refused;
export type ResolveOutcome = ({ kind: 'resolved' } & ResolveReply) | Retry | Refused;

export interface AssignAsk {
  relayHostId: string;
  relayToken: string;
  preferredRegion: string | undefined;
}

/** Statuses below 500 that say "later", not "no". */
const RETRYABLE_STATUSES = new Set([408, 425, 429]);
/** Sent by proxies in front of a director that is not there. */
const PROXY_STATUSES = new Set([502, 504]);

/**
 * The directors a client was configured with. Any of them can answer any question; the last that did is asked first, and
 * the others only when it gives no answer: a director that says 503 speaks for all, since they share one database.
 */
export class Directors {
  readonly #ports: Pick<Ports, 'fetch' | 'clock' | 'random'>;
  readonly #origins: readonly string[];
  readonly #notBefore = new Map<string, number>();
  #preferred: string;

  /** @throws TypeError unless every origin is https, or http on loopback */
  constructor(ports: Pick<Ports, 'fetch' | 'clock' | 'random'>, origins: readonly string[]) {
    const [first] = origins;
    if (first === undefined) throw new TypeError('at least one director origin is needed');
    for (const origin of origins) {
      if (!isOrigin(origin)) throw new TypeError(`not an https (or loopback http) origin: ${origin}`);
    }
    this.#ports = ports;
    this.#origins = origins;
    this.#preferred = first;
  }

  /** The one that answered last. */
  get preferred(): string {
    return this.#preferred;
  }

  inOrder(): string[] {
    return [this.#preferred, ...this.#origins.filter((origin) => origin !== this.#preferred)];
  }

  answered(origin: string): void {
    this.#preferred = origin;
  }

  /** `POST /v1/assign`: once per director at most, paced per director. */
  async assign(ask: AssignAsk, signal: AbortSignal): Promise<AssignOutcome> {
    let outcome: AssignOutcome = { kind: 'retry', reason: 'no director asked', unanswered: true };
    for (const origin of this.inOrder()) {
      outcome = await this.#pacedAssign(origin, ask, signal);
      if (outcome.kind !== 'retry' || !outcome.unanswered || signal.aborted) return outcome;
    }
    return outcome;
  }

  /** `POST /v1/resolve`, 5 s a director. The token travels in the body, never in a URL. */
  async resolve(relayHostId: string, resumeToken: string, signal: AbortSignal): Promise<ResolveOutcome> {
    let outcome: ResolveOutcome = { kind: 'retry', reason: 'no director asked', unanswered: true };
    for (const origin of this.inOrder()) {
      const body = { v: 1, relayHostId, resumeToken };
      const reply = await this.#post(origin, {
        url: `${origin}/v1/resolve`,
        body,
        timeoutMs: CLIENT_LIMITS.resolveTimeoutMs,
        signal,
      });
      outcome = judge(reply, (answer) => {
        const parsed = resolveReply.safeParse(answer);
        return parsed.success ? { kind: 'resolved', ...parsed.data } : null;
      });
      if (outcome.kind !== 'retry' || !outcome.unanswered || signal.aborted) return outcome;
    }
    return outcome;
  }

  async #pacedAssign(origin: string, ask: AssignAsk, signal: AbortSignal): Promise<AssignOutcome> {
    const { clock, random } = this.#ports;
    const waitMs = (this.#notBefore.get(origin) ?? 0) - clock.now();
    if (waitMs > CLIENT_LIMITS.assignMaxPaceWaitMs) {
      return { kind: 'retry', reason: 'paced', retryAfterMs: waitMs, unanswered: false };
    }
    if (waitMs > 0 && !(await sleep(clock, waitMs, signal))) {
      return { kind: 'retry', reason: 'given up', unanswered: false };
    }
    const outcome = await this.#assignWithFallbacks(origin, ask, signal);
    const pace = between(CLIENT_LIMITS.assignPaceMinMs, CLIENT_LIMITS.assignPaceMaxMs, random);
    const asked = outcome.kind === 'retry' ? (outcome.retryAfterMs ?? 0) : 0;
    this.#notBefore.set(origin, clock.now() + Math.max(pace, asked));
    return outcome;
  }

  /** Relays older than a field answer 400 to it; leaving fields out one by one finds what they take. */
  async #assignWithFallbacks(origin: string, ask: AssignAsk, signal: AbortSignal): Promise<AssignOutcome> {
    const plain = { v: 1, relayHostId: ask.relayHostId };
    const bodies: object[] = [{ ...plain, reconnect: true }, plain];
    if (ask.preferredRegion !== undefined) {
      bodies.unshift({ ...plain, reconnect: true, preferredRegion: ask.preferredRegion });
    }
    let outcome: AssignOutcome = { kind: 'refused', status: 400, error: 'invalid_request' };
    for (const body of bodies) {
      const reply = await this.#post(origin, {
        url: `${origin}/v1/assign`,
        body,
        bearer: ask.relayToken,
        timeoutMs: CLIENT_LIMITS.httpTimeoutMs,
        signal,
      });
      outcome = judge(reply, (answer) => {
        const parsed = assignReply.safeParse(withoutRegionCorrection(answer));
        return parsed.success ? { kind: 'granted', ...parsed.data } : null;
      });
      if (outcome.kind !== 'refused' || outcome.status !== 400) break;
    }
    return outcome;
  }

  async #post(origin: string, post: HttpPost): Promise<HttpOutcome> {
    const outcome = await postJson(this.#ports, post);
    if (outcome.kind === 'answer' && !PROXY_STATUSES.has(outcome.status)) this.answered(origin);
    return outcome;
  }
}

function judge<T>(reply: HttpOutcome, read: (body: unknown) => T | null): T | Retry | Refused {
  if (reply.kind === 'unanswered') return { kind: 'retry', reason: reply.reason, unanswered: true };
  const { status, body } = reply;
  if (status === 200) return read(body) ?? { kind: 'retry', reason: 'unreadable answer', unanswered: true };
  const parsed = errorReply.safeParse(body);
  const error = parsed.success ? parsed.data.error : `HTTP ${status}`;
  if (status < 500 && !RETRYABLE_STATUSES.has(status)) return { kind: 'refused', status, error };
  const floor = reply.retryAfterMs === undefined ? {} : { retryAfterMs: reply.retryAfterMs };
  return { kind: 'retry', reason: error, unanswered: PROXY_STATUSES.has(status), ...floor };
}

/** Some relays add a region verdict to an assignment; a client that never asked for one does not read it. */
function withoutRegionCorrection(answer: unknown): unknown {
  if (typeof answer !== 'object' || answer === null) return answer;
  const { regionCorrection: _, ...rest } = answer as Record<string, unknown>;
  return rest;
}
