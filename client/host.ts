import { LIMITS } from '../contract/limits.ts';
import { backoffDelay, between, HOST_BACKOFF, renewalDelay } from './backoff.ts';
import { orAborted, type Timer } from './clock.ts';
import { ControlRequestError } from './control-requests.ts';
import { type AssignOutcome, Directors } from './directors.ts';
import { Events } from './events.ts';
import { askAssignment } from './host-assignment.ts';
import { HostCommands } from './host-commands.ts';
import { type ControlTarget, type HelloAck, HostControl } from './host-control.ts';
import type { HostConnection } from './host-data.ts';
import { type HostKeys, type HostNames, hostNames } from './host-keys.ts';
import { HOST_TABLE, type HostEffect, type HostEvent, type HostState } from './host-machine.ts';
import { HostSession } from './host-session.ts';
import { type RelayToken, type RelayTokenSource, readClaims, TokenKeeper } from './host-token.ts';
import type { RelayInvite } from './invite.ts';
import { CLIENT_LIMITS } from './limits.ts';
import type { Ports } from './ports.ts';
import type { SocketEnd } from './socket.ts';

export interface HostOptions {
  /** Any of them can place this host; the last that answered is asked first. */
  directorOrigins: readonly string[];
  /** The host's identity. Keep the secret key: another key is another host. */
  keys: HostKeys;
  tokens: RelayTokenSource;
  appVersion: string;
  preferredRegion?: string;
  /** Called once for each phone, with its first message already waiting in the stream. */
  onConnection(connection: HostConnection): void | Promise<void>;
}

export interface HostEvents {
  state: HostState;
  /** Seated, or seated anew. `rebound` when the phones connected before still are. */
  online: { cellUrl: string; assignmentEpoch: number; generation: number; rebound: boolean };
  drain: { cellUrl: string; graceMs: number };
  /** The control of the cell that serves this host ended. */
  lost: SocketEnd;
  retry: { reason: string; inMs: number };
  /** Final until `start()` is called again, once whatever was wrong is mended. */
  refused: { status: number; error: string };
  warning: string;
}

/** A desktop on the relay: keeps one control channel alive and takes phones' connections. */
export class RelayHost extends Events<HostEvents> {
  readonly names: HostNames;
  readonly commands: HostCommands;
  readonly #options: HostOptions;
  readonly #ports: Ports;
  readonly #directors: Directors;
  readonly #tokens: TokenKeeper;
  readonly #retired = new Set<HostSession>();
  readonly #effects: Record<HostEffect, () => void>;
  #state: HostState = 'idle';
  #session: HostSession | null = null;
  #target: ControlTarget | null = null;
  #attempt = new AbortController();
  readonly #life = new AbortController();
  #signingOut = false;
  #timer: Timer | null = null;
  #tokenTimer: Timer | null = null;
  #streak = 0;
  #onlineSince: number | null = null;
  #failure: { reason: string; retryAfterMs: number } = { reason: '', retryAfterMs: 0 };

  /** @throws TypeError for a director origin that is neither https nor loopback */
  constructor(options: HostOptions, ports: Ports) {
    super();
    this.#options = options;
    this.#ports = ports;
    this.names = hostNames(options.keys);
    this.#directors = new Directors(ports, options.directorOrigins);
    this.#tokens = new TokenKeeper(ports, options.tokens, this.names);
    this.commands = new HostCommands(() => this.#session?.control ?? null);
    this.#effects = this.#wireEffects();
  }

  get state(): HostState {
    return this.#state;
  }

  /** Goes online and stays there; after a refusal: tries again; while waiting for the back-off: tries now. */
  start(): void {
    this.#dispatch('start');
  }

  /** Resolves once seated; rejects when refused or stopped, or when the signal fires, and says why there is no seat yet. */
  async online(signal: AbortSignal = new AbortController().signal): Promise<void> {
    if (this.#session?.control) return;
    const settled = (state: HostState) => state === 'online' || state === 'refused' || state === 'stopped';
    const state = settled(this.#state)
      ? this.#state
      : await orAborted(this.next('state', settled), signal).catch(() => this.#state);
    if (state !== 'online') throw new Error(`the host is ${state}: ${this.#failure.reason}`);
  }

  /** An invite as a phone needs it: the relay's part of a pairing offer. Rejects with `ControlRequestError`. */
  async invite(relayDeviceId: string): Promise<RelayInvite> {
    const session = this.#session;
    if (!session) throw new ControlRequestError('not_connected');
    const { inviteToken, expiresAt } = await this.commands.createInvite(relayDeviceId);
    const { cellUrl, assignmentEpoch } = session.target;
    return {
      v: 1,
      directorUrl: this.#directors.preferred,
      cellUrl,
      assignmentEpoch,
      relayHostId: this.names.relayHostId,
      inviteToken,
      inviteExpiresAt: expiresAt,
      e2eeFraming: 2,
    };
  }

  /** Ends everything at once, for good. The relay keeps the seat for half a minute, in case the host comes back. */
  stop(): void {
    this.#dispatch('stop');
  }

  /** Says to the relay, and through it to phones, that the user signed out; then stops. */
  async signOut(): Promise<void> {
    const control = this.#session?.control;
    if (control) {
      this.#signingOut = true;
      const gone = this.next('lost');
      control.signOut();
      const flushed = new AbortController();
      const timer = this.#ports.clock.after(CLIENT_LIMITS.signOutFlushMs, () => flushed.abort());
      await orAborted(gone, flushed.signal).catch(() => undefined);
      timer.cancel();
    }
    this.stop();
  }

  #dispatch(event: HostEvent): void {
    const before = this.#state;
    const step = HOST_TABLE[before][event];
    this.#state = step.to;
    for (const effect of step.effects) this.#effects[effect]();
    if (step.to !== before) this.emit('state', step.to);
  }

  #wireEffects(): Record<HostEffect, () => void> {
    return {
      assign: () => void this.#assign(this.#newAttempt()),
      open: () => {
        const same = this.#session && this.#session.target.cellUrl === this.#target?.cellUrl;
        void this.#open(this.#newAttempt(), same ? this.#session : null);
      },
      'open-fresh': () => void this.#open(this.#newAttempt(), null),
      rebind: () => void this.#open(this.#newAttempt(), this.#session),
      'abandon-attempt': () => void this.#newAttempt(),
      adopt: () => this.#armTokenRefresh(this.#tokens.refreshDelay()),
      'arm-backoff': () => this.#armBackoff(),
      'arm-renewal': () => {
        const left = (this.#session?.leaseExpiresAt ?? 0) - this.#ports.clock.now();
        this.#arm(renewalDelay(left, this.#ports.random));
      },
      'arm-renewal-retry': () => this.#arm(this.#renewRetryMs()),
      'cancel-timer': () => this.#timer?.cancel(),
      'retire-cell': () => this.#retire(),
      stop: () => this.#stopAll(),
    };
  }

  /** Whatever was tried before counts no longer. */
  #newAttempt(): AbortSignal {
    this.#attempt.abort(new Error('given up'));
    this.#attempt = new AbortController();
    return this.#attempt.signal;
  }

  async #assign(signal: AbortSignal): Promise<void> {
    const { relayHostId } = this.names;
    const ask = { relayHostId, preferredRegion: this.#options.preferredRegion };
    const outcome = await askAssignment(this.#tokens, this.#directors, ask, signal);
    if (!signal.aborted) this.#assigned(outcome);
  }

  #assigned(outcome: AssignOutcome): void {
    if (outcome.kind === 'granted') {
      const { cellUrl, assignmentEpoch, lease } = outcome;
      this.#target = { cellUrl, assignmentEpoch, lease };
      this.#dispatch('assigned');
      return;
    }
    if (outcome.kind === 'retry') {
      this.#failure = { reason: outcome.reason, retryAfterMs: outcome.retryAfterMs ?? 0 };
      this.#dispatch('assign-failed');
      return;
    }
    this.#failure = { reason: outcome.error, retryAfterMs: 0 };
    this.#dispatch('assign-refused');
    this.emit('refused', { status: outcome.status, error: outcome.error });
  }

  async #open(signal: AbortSignal, resumed: HostSession | null): Promise<void> {
    const target = this.#target;
    let token: RelayToken;
    try {
      token = await this.#tokens.current(signal);
    } catch (error) {
      if (!signal.aborted) this.#openFailed({ code: 1006, reason: `no relay token: ${String(error)}` }, false);
      return;
    }
    if (signal.aborted || !target) return;
    let session: HostSession | null = null;
    const control = new HostControl(
      this.#ports,
      {
        ...this.names,
        keys: this.#options.keys,
        appVersion: this.#options.appVersion,
        relayToken: token.relayToken,
        claims: readClaims(token.relayToken),
      },
      target,
      resumed?.resume,
      {
        ready: (ack) => {
          if (signal.aborted) return;
          session = this.#seat(target, control, ack, resumed);
          this.#dispatch('opened');
        },
        connOpen: ({ connId, connTicket, kind, relayDeviceId, attachDeadlineMs }) =>
          session?.attach({ connId, connTicket, kind, relayDeviceId, attachDeadlineMs }),
        drain: (graceMs) => {
          session?.draining(graceMs);
          if (!session || session !== this.#session) return;
          this.emit('drain', { cellUrl: target.cellUrl, graceMs });
          this.#dispatch('drain');
        },
        warning: (text) => this.emit('warning', text),
        ended: (end, resumeRefused) => {
          if (session) this.#controlEnded(session, control, end);
          else if (!signal.aborted) this.#openFailed(end, resumeRefused);
        },
      },
    );
    signal.addEventListener('abort', () => {
      if (!session) control.terminate();
    });
  }

  /** A control that proved itself: it goes on with its session, or begins one and sends the session before it away. */
  #seat(target: ControlTarget, control: HostControl, ack: HelloAck, resumed: HostSession | null): HostSession {
    const old = this.#session;
    let session = resumed;
    if (session) {
      session.rebound(target, control, ack);
    } else {
      if (old?.target.cellUrl === target.cellUrl) old.end();
      else this.#retire();
      session = new HostSession(this.#ports, target, control, ack, {
        connection: (connection) => void this.#serve(connection),
        warning: (text) => this.emit('warning', text),
        gone: (gone) => this.#retired.delete(gone),
      });
      this.#session = session;
    }
    this.#onlineSince = this.#ports.clock.now();
    const { cellUrl, assignmentEpoch } = target;
    this.emit('online', { cellUrl, assignmentEpoch, generation: ack.generation, rebound: resumed !== null });
    return session;
  }

  async #serve(connection: HostConnection): Promise<void> {
    try {
      await this.#options.onConnection(connection);
    } catch (error) {
      connection.stream.terminate();
      this.emit('warning', `the connection handler failed: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #controlEnded(session: HostSession, control: HostControl, end: SocketEnd): void {
    if (session.control !== control) return;
    session.controlLost();
    if (session !== this.#session) return;
    this.#noteEnd(end);
    this.#tokenTimer?.cancel();
    this.emit('lost', end);
    this.#dispatch(this.#signingOut ? 'stop' : 'lost');
  }

  #openFailed(end: SocketEnd, resumeRefused: boolean): void {
    if (!resumeRefused) this.#noteEnd(end);
    this.#dispatch(resumeRefused ? 'resume-refused' : 'open-failed');
  }

  #noteEnd(end: SocketEnd): void {
    if (end.status === 401 || end.code === 4401) this.#tokens.forget();
    const reason = `cell: ${end.status ?? end.code} ${end.reason}`.trim();
    this.#failure = { reason, retryAfterMs: end.retryAfterMs ?? 0 };
  }

  #retire(): void {
    const session = this.#session;
    this.#session = null;
    if (!session) return;
    this.#retired.add(session);
    session.retire();
  }

  #arm(delayMs: number): void {
    this.#timer?.cancel();
    this.#timer = this.#ports.clock.after(delayMs, () => this.#dispatch('due'));
  }

  #armBackoff(): void {
    const { clock, random } = this.#ports;
    const stable = this.#onlineSince !== null && clock.now() - this.#onlineSince >= CLIENT_LIMITS.stableMs;
    if (stable) this.#streak = 0;
    this.#onlineSince = null;
    const inMs = backoffDelay(HOST_BACKOFF, this.#streak, random, this.#failure.retryAfterMs);
    this.#streak += 1;
    this.#arm(inMs);
    this.emit('retry', { reason: this.#failure.reason, inMs });
  }

  #renewRetryMs(): number {
    return between(CLIENT_LIMITS.renewRetryMinMs, CLIENT_LIMITS.renewRetryMaxMs, this.#ports.random);
  }

  #armTokenRefresh(delayMs: number): void {
    this.#tokenTimer?.cancel();
    this.#tokenTimer = this.#ports.clock.after(delayMs, () => void this.#refreshToken());
  }

  async #refreshToken(): Promise<void> {
    const controls = () => [this.#session, ...this.#retired].map((session) => session?.control);
    const expiresAt = this.#tokens.held?.expiresAt ?? 0;
    try {
      const { relayToken } = await this.#tokens.fresh(this.#life.signal);
      if (!this.#session?.control) return;
      for (const control of controls()) control?.refreshToken(relayToken);
      this.#armTokenRefresh(this.#tokens.refreshDelay());
    } catch (error) {
      if (!this.#session?.control) return;
      this.emit('warning', `token refresh failed: ${error instanceof Error ? error.message : String(error)}`);
      // The cell ends the control by then in any case; ending it here starts the search for a cell a little sooner.
      if (this.#ports.clock.now() > expiresAt + LIMITS.authExpiryGraceMs) this.#session.control.terminate();
      else this.#armTokenRefresh(this.#renewRetryMs());
    }
  }

  #stopAll(): void {
    this.#newAttempt();
    this.#life.abort(new Error('stopped'));
    this.#timer?.cancel();
    this.#tokenTimer?.cancel();
    const session = this.#session;
    this.#session = null;
    for (const each of [session, ...this.#retired]) each?.end();
    this.#retired.clear();
  }
}
