import { LIMITS } from '../contract/limits.ts';
import { backoffDelay, between, PHONE_BACKOFF, rejectedProbeDelay } from './backoff.ts';
import { deadline, orAborted, type Timer } from './clock.ts';
import { Directors, type ResolveOutcome } from './directors.ts';
import { Events } from './events.ts';
import { CLIENT_LIMITS } from './limits.ts';
import { type AcceptedHello, type DialOutcome, dialPhone } from './phone-dial.ts';
import { endEvent, PHONE_TABLE, type PhoneEffect, type PhoneEvent, type PhoneState } from './phone-machine.ts';
import type { Ports } from './ports.ts';
import type { SocketEnd } from './socket.ts';
import type { MessageStream } from './stream.ts';

/** Where the host was last known to be. Store what the `endpoint` event says. */
export interface PhoneEndpoint {
  cellUrl: string;
  assignmentEpoch: number;
}

export interface PhoneConnection {
  readonly endpoint: PhoneEndpoint;
  readonly hello: Extract<AcceptedHello, { credentialKind: 'resume' }>;
  readonly stream: MessageStream;
}

export interface PhoneOptions {
  /** Asked where the host is; nobody else is believed. The last that answered is asked first. */
  directorOrigins: readonly string[];
  relayHostId: string;
  endpoint: PhoneEndpoint;
  /** Resume tokens, the newest first; after a rotation the one before it may follow, for the 24 h that it stays good. */
  resumeTokens: readonly string[];
  /**
   * Runs on every connection before it is announced, within 30 s: the end-to-end handshake, and asking the host to
   * confirm the resume, which renews the credential. A failure ends the connection, and the back-off decides when the
   * next one is tried.
   */
  confirm?(connection: PhoneConnection, signal: AbortSignal): Promise<void>;
}

export interface PhoneEvents {
  state: PhoneState;
  /** A fresh splice: nothing of an earlier connection carries over. The other side waits for the phone to speak first. */
  connected: PhoneConnection;
  disconnected: SocketEnd;
  /** The host was found elsewhere. */
  endpoint: PhoneEndpoint;
  retry: { reason: string; inMs: number };
  /** 4404; `signedOut` when the user signed out on the host. */
  'host-offline': { signedOut: boolean };
  /** No token is accepted any more: pair again. Until `useTokens`, they are tried again every 1 to 15 min. */
  'credential-rejected': { reason: string };
  warning: string;
}

/** A phone on the relay: keeps a connection to its host, whatever happens in between. */
export class RelayPhone extends Events<PhoneEvents> {
  readonly #options: PhoneOptions;
  readonly #ports: Ports;
  readonly #directors: Directors;
  readonly #effects: Record<PhoneEffect, () => void>;
  #state: PhoneState = 'idle';
  #endpoint: PhoneEndpoint;
  #tokens: readonly string[];
  #tokenIndex = 0;
  #connection: PhoneConnection | null = null;
  #connectedAt: number | null = null;
  #attempt = new AbortController();
  #timer: Timer | null = null;
  #streak = 0;
  #rejections = 0;
  #failure: { reason: string; retryAfterMs: number } = { reason: '', retryAfterMs: 0 };

  /** @throws TypeError without a token, or for a director origin that is neither https nor loopback */
  constructor(options: PhoneOptions, ports: Ports) {
    super();
    if (options.resumeTokens.length === 0) throw new TypeError('at least one resume token is needed');
    this.#options = options;
    this.#ports = ports;
    this.#endpoint = options.endpoint;
    this.#tokens = options.resumeTokens;
    this.#directors = new Directors(ports, options.directorOrigins);
    this.#effects = this.#wireEffects();
  }

  get state(): PhoneState {
    return this.#state;
  }

  get endpoint(): PhoneEndpoint {
    return this.#endpoint;
  }

  /** The connection that was announced and still lives. */
  get connection(): PhoneConnection | null {
    return this.#state === 'connected' ? this.#connection : null;
  }

  /** Connects and stays connected; while waiting: tries now (the network is back, the app came to the front). */
  start(): void {
    this.#dispatch('start');
  }

  /** Ends the connection, for good. */
  stop(): void {
    this.#dispatch('stop');
  }

  /** After a rotation or a new pairing, the newest first. */
  useTokens(resumeTokens: readonly string[]): void {
    if (resumeTokens.length === 0) throw new TypeError('at least one resume token is needed');
    this.#tokens = resumeTokens;
    this.#tokenIndex = 0;
    this.#rejections = 0;
    if (this.#state === 'rejected') this.start();
  }

  #dispatch(event: PhoneEvent): void {
    const before = this.#state;
    const step = PHONE_TABLE[before][event];
    this.#state = step.to;
    for (const effect of step.effects) this.#effects[effect]();
    if (step.to !== before) this.emit('state', step.to);
  }

  #wireEffects(): Record<PhoneEffect, () => void> {
    const { random } = this.#ports;
    const { offlineRetryMinMs, offlineRetryMaxMs } = CLIENT_LIMITS;
    return {
      resolve: () => void this.#resolve(this.#newAttempt()),
      dial: () => void this.#dial(this.#newAttempt()),
      confirm: () => void this.#confirm(this.#attempt.signal),
      announce: () => this.#announce(),
      'next-credential': () => {
        this.#tokenIndex += 1;
      },
      'report-rejected': () => {
        this.#tokenIndex = 0;
        this.emit('credential-rejected', { reason: this.#failure.reason });
      },
      'arm-backoff': () => {
        const inMs = backoffDelay(PHONE_BACKOFF, this.#streak, random, this.#failure.retryAfterMs);
        this.#streak += 1;
        this.#arm(inMs);
      },
      'arm-offline': () => {
        const random5to15 = between(offlineRetryMinMs, offlineRetryMaxMs, random);
        this.#arm(Math.max(random5to15, this.#failure.retryAfterMs));
      },
      'arm-probe': () => {
        this.#arm(rejectedProbeDelay(this.#rejections, random));
        this.#rejections += 1;
      },
      'cancel-timer': () => this.#timer?.cancel(),
      stop: () => {
        this.#timer?.cancel();
        this.#newAttempt();
        this.#connection?.stream.close(1000, '');
      },
    };
  }

  #newAttempt(): AbortSignal {
    this.#attempt.abort(new Error('given up'));
    this.#attempt = new AbortController();
    return this.#attempt.signal;
  }

  #arm(inMs: number): void {
    this.#timer?.cancel();
    this.#timer = this.#ports.clock.after(inMs, () => this.#dispatch('due'));
    this.emit('retry', { reason: this.#failure.reason, inMs });
  }

  get #token(): string {
    return this.#tokens[this.#tokenIndex] ?? this.#tokens[0]!;
  }

  async #resolve(signal: AbortSignal): Promise<void> {
    const outcome = await this.#directors.resolve(this.#options.relayHostId, this.#token, signal);
    if (!signal.aborted) this.#resolved(outcome);
  }

  #resolved(outcome: ResolveOutcome): void {
    if (outcome.kind === 'resolved') {
      this.#moveTo({ cellUrl: outcome.cellUrl, assignmentEpoch: outcome.assignmentEpoch });
      this.#dispatch('resolved');
      return;
    }
    if (outcome.kind === 'retry') {
      this.#fail(`director: ${outcome.reason}`, outcome.retryAfterMs);
      this.#dispatch(outcome.unanswered ? 'resolve-unanswered' : 'resolve-busy');
      return;
    }
    this.#fail(`director: ${outcome.error}`);
    this.#dispatch(outcome.status === 401 ? this.#rejection() : 'resolve-busy');
  }

  /** A director may lag behind what a newer one said; it never sends a phone back. */
  #moveTo(found: PhoneEndpoint): void {
    const held = this.#endpoint;
    if (found.assignmentEpoch < held.assignmentEpoch) return;
    if (found.assignmentEpoch === held.assignmentEpoch && found.cellUrl === held.cellUrl) return;
    this.#endpoint = found;
    this.emit('endpoint', found);
  }

  async #dial(signal: AbortSignal): Promise<void> {
    const { relayHostId } = this.#options;
    const endpoint = this.#endpoint;
    const target = { origin: endpoint.cellUrl, relayHostId, credential: this.#token };
    const outcome = await dialPhone(this.#ports, target, signal);
    if (!signal.aborted) this.#dialled(outcome, endpoint);
    else if (outcome.kind === 'hello') outcome.stream.terminate();
  }

  #dialled(outcome: DialOutcome, endpoint: PhoneEndpoint): void {
    if (outcome.kind === 'ended') {
      this.#ended(outcome.end, outcome.answered);
      return;
    }
    if (outcome.kind === 'moved' || outcome.hello.credentialKind !== 'resume') {
      // Moves are for invites and come from directors, which a phone asks over HTTP.
      if (outcome.kind === 'hello') outcome.stream.terminate();
      this.#ended({ code: 1002, reason: 'unexpected answer' }, false);
      return;
    }
    const connection: PhoneConnection = { endpoint, hello: outcome.hello, stream: outcome.stream };
    this.#connection = connection;
    this.#connectedAt = this.#ports.clock.now();
    void connection.stream.closed.then((end) => this.#connectionEnded(connection, end));
    this.#dispatch('hello');
  }

  async #confirm(signal: AbortSignal): Promise<void> {
    const connection = this.#connection;
    if (!connection) return;
    const limit = deadline(this.#ports.clock, LIMITS.resumeConfirmationDeadlineMs, signal);
    try {
      const hook = this.#options.confirm?.(connection, limit.signal);
      if (hook) await orAborted(hook, limit.signal);
      if (connection === this.#connection) this.#dispatch('confirmed');
    } catch (error) {
      if (connection !== this.#connection) return;
      this.#connection = null;
      connection.stream.terminate();
      this.#fail(`not confirmed: ${error instanceof Error ? error.message : String(error)}`);
      this.#dispatch('confirm-failed');
    } finally {
      limit.done();
    }
  }

  #announce(): void {
    this.#rejections = 0;
    if (this.#connection) this.emit('connected', this.#connection);
  }

  #connectionEnded(connection: PhoneConnection, end: SocketEnd): void {
    if (connection !== this.#connection) return;
    const announced = this.#state === 'connected';
    this.#connection = null;
    // The hook that was still at work on it has nothing left to work on.
    this.#newAttempt();
    const lived = this.#ports.clock.now() - (this.#connectedAt ?? 0);
    if (lived >= CLIENT_LIMITS.stableMs) this.#streak = 0;
    if (announced) this.emit('disconnected', end);
    this.#ended(end, true);
  }

  #ended(end: SocketEnd, answered: boolean): void {
    this.#fail(`cell: ${end.status ?? end.code} ${end.reason}`.trim(), end.retryAfterMs);
    const event = endEvent(end.code, answered);
    if (event === 'host-offline') this.emit('host-offline', { signedOut: end.reason === 'signed-out' });
    this.#dispatch(event === 'rejected' ? this.#rejection() : event);
  }

  #rejection(): PhoneEvent {
    return this.#tokenIndex + 1 < this.#tokens.length ? 'rejected' : 'all-rejected';
  }

  #fail(reason: string, retryAfterMs = 0): void {
    this.#failure = { reason, retryAfterMs };
  }
}
