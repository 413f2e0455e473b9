import {
  type Capability,
  type CellFrameOf,
  CLOSE,
  CLOSE_REASONS,
  type CloseReason,
  cellFrames,
  isHostCloseReason,
  LIMITS,
  newToken,
} from '../../contract/index.ts';
import { type Clock, type Clocks, every, type Timer } from '../clock.ts';
import { type HostIdentity, secretEquals } from '../tokens.ts';
import type { Connection } from './connection.ts';
import {
  CONTROL_TRANSITIONS,
  type ControlEvent,
  type ControlState,
  END_REASONS,
  type EndCause,
} from './control-states.ts';
import { decideTick, rollControlLease } from './control-tick.ts';
import type { PeerSocket } from './peer-socket.ts';
import type { HostName } from './seats.ts';

/** What a session sets off outside itself. */
export interface SessionEffects {
  /** A message from the host, on the socket it came by. */
  message(session: ControlSession, socket: PeerSocket, data: ArrayBuffer, isBinary: boolean): void;
  /** A socket of the session has closed, or the session has come to its end. */
  closed(session: ControlSession, close: ControlClose): void;
  /** Its state has changed by something other than taking its seat, a new socket in it, or the end. */
  stepped(session: ControlSession): void;
  /** Once, after its socket and its phones were let go. */
  ended(session: ControlSession, end: SessionEnd): void;
  tick(session: ControlSession): void;
}

export interface ControlClose {
  code: number;
  reason: string;
  cause: EndCause | 'socket-lost' | 'rebound' | 'refused';
}

export interface SessionEnd {
  cause: EndCause;
  /** As its last socket was closed, or would have been; 4409 for a host that was demoted. */
  closeCode: number;
  /** The socket that it closes, which may take a second; null if none was left. */
  closing: PeerSocket | null;
}

export interface SessionStart {
  identity: HostIdentity;
  socket: PeerSocket;
  capabilities: ReadonlySet<Capability>;
  /** Of the admission ledger, once it held this socket's unit. */
  watermark: number;
}

/** By whoever seats the session or gives it a new socket, and by its end. */
const TOLD_OTHERWISE: ReadonlySet<ControlEvent> = new Set<ControlEvent>(['activated', 'rebound', 'ended']);
const NO_CONNECTIONS: ReadonlyMap<string, Connection> = new Map();

/**
 * A host's control, from its socket's upgrade to the end of its generation. `control-states.ts` has the states; what is kept
 * here is what they decide about: the socket, the phones, the deadlines. A rebind gives the session a new socket; a new
 * generation is a new session.
 */
export class ControlSession {
  readonly host: HostName;
  readonly startedAt: number;
  /** Made while there are any: most hosts have none, and an empty map is 421 B. */
  #connections: Map<string, Connection> | null = null;
  identity: HostIdentity;
  capabilities: ReadonlySet<Capability>;
  appVersion = 'unknown';
  epoch = 0;
  generation = 0;
  resumeSecret = '';
  /** Of the latest change in what this host holds here. */
  watermark: number;
  #state: ControlState = 'proving';
  #socket: PeerSocket | null;
  #drained = false;
  #demoted = false;
  #lostCode = 0;
  #leaseUntil = 0;
  #lastPongAt: number;
  #ping: { t: number; at: number } | null = null;
  #stopTicking: (() => void) | undefined;
  #graceTimer: Timer | undefined;
  #drainTimer: Timer | undefined;
  /** When it is to end, and why: the earliest counts. */
  readonly #endsAt = new Map<EndCause, number>();
  readonly #clock: Clock;
  readonly #peerTime: Clock;
  readonly #effects: SessionEffects;

  constructor({ clock, peerTime }: Clocks, effects: SessionEffects, start: SessionStart) {
    this.#clock = clock;
    this.#peerTime = peerTime;
    this.#effects = effects;
    this.identity = start.identity;
    this.host = { userId: start.identity.userId, relayHostId: start.identity.relayHostId };
    this.capabilities = start.capabilities;
    this.watermark = start.watermark;
    this.#socket = start.socket;
    this.startedAt = clock.now();
    this.#lastPongAt = peerTime.now();
  }

  get state(): ControlState {
    return this.#state;
  }

  get socket(): PeerSocket | null {
    return this.#socket;
  }

  /** True once this host was told to leave: it takes no phones, and no refresh brings it back. */
  get drained(): boolean {
    return this.#drained;
  }

  /** True once a newer seat outranked this one: however it ends, its host was sent away. */
  get demoted(): boolean {
    return this.#demoted;
  }

  /** Whether new phones, invites and direct installs are taken. */
  get takesPhones(): boolean {
    return this.#state === 'active';
  }

  /** Whether the host's messages and data sockets are heard. */
  get serving(): boolean {
    return this.#state === 'active' || this.#state === 'drain-only';
  }

  /** Whether a hello with the right secret continues this session. */
  rebindable(secret: string | undefined): boolean {
    if (secret === undefined || this.#drained || CONTROL_TRANSITIONS[this.#state].rebound === null) return false;
    return secretEquals(this.resumeSecret, secret);
  }

  get leaseExpiresAt(): number {
    return Math.floor(this.#clock.wallNow() + this.#leaseUntil - this.#clock.now());
  }

  get spliceCount(): number {
    let count = 0;
    for (const connection of this.connections.values()) if (connection.active) count += 1;
    return count;
  }

  get units(): number {
    return LIMITS.controlUnits + LIMITS.spliceUnits * this.spliceCount;
  }

  get connections(): ReadonlyMap<string, Connection> {
    return this.#connections ?? NO_CONNECTIONS;
  }

  hold(connection: Connection): void {
    this.#connections ??= new Map();
    this.#connections.set(connection.connId, connection);
  }

  letGo(connId: string): void {
    this.#connections?.delete(connId);
    if (this.#connections?.size === 0) this.#connections = null;
  }

  get full(): boolean {
    return this.connections.size >= LIMITS.maxConnectionsPerHost;
  }

  /** The proof stands and the database agreed: this socket holds a seat, in a generation of its own. */
  activate(seat: { epoch: number; generation: number; appVersion: string }): void {
    if (!this.#fire('activated')) return;
    this.epoch = seat.epoch;
    this.generation = seat.generation;
    this.appVersion = seat.appVersion;
    this.resumeSecret = newToken();
    this.#leaseUntil = this.#clock.now() + rollControlLease(Math.random());
    this.#lastPongAt = this.#peerTime.now();
    this.#listen();
    this.#stopTicking = every(this.#clock, LIMITS.controlPingIntervalMs, () => this.#tick());
  }

  /** Takes over the socket of a control that proved itself with this session's secret; generation and phones stay. */
  rebind(from: ControlSession, appVersion: string): void {
    const socket = from.#socket;
    if (socket === null || !this.#fire('rebound')) return;
    from.#socket = null;
    from.#fire('ended');
    this.#peerTime.clearTimeout(this.#graceTimer);
    const old = this.#socket;
    this.#socket = socket;
    this.identity = from.identity;
    this.capabilities = from.capabilities;
    this.appVersion = appVersion;
    this.watermark = from.watermark;
    this.#leaseUntil = this.#clock.now() + rollControlLease(Math.random());
    this.#lastPongAt = this.#peerTime.now();
    this.#ping = null;
    this.#listen();
    if (old?.open) {
      old.close('control rebound');
      this.#reportClose('control rebound', 'rebound');
    }
  }

  /** A fresh token of the same identity. */
  refresh(identity: HostIdentity): void {
    this.identity = identity;
    if (!this.#drained) this.#fire('token-refreshed');
  }

  /** The host will be let go when the grace is over; an earlier end stands. Until then it takes no phones. */
  drain(graceMs: number, cause: EndCause): void {
    const grace = Math.max(0, Math.min(Math.floor(graceMs), LIMITS.maxGraceMs));
    const told = this.#endsAt.size > 0;
    this.#drained = true;
    if (!this.#fire('drained')) return;
    this.#endsAt.set(cause, Math.min(this.#endsAt.get(cause) ?? Number.POSITIVE_INFINITY, this.#clock.now() + grace));
    if (!told || grace === 0) this.sendDrain(grace);
    if (grace === 0) this.end(cause);
    else this.#awaitEnd();
  }

  /** A newer seat outranks this one: a drain from which the host may not come back to this epoch. */
  demote(): void {
    this.#demoted = true;
    this.drain(LIMITS.demotedGraceMs, 'demoted');
  }

  /** Another time for an end that the host was told of, earlier or later; false if it was told of no such end. */
  postpone(cause: EndCause, delayMs: number): boolean {
    if (this.#state === 'closed' || !this.#endsAt.has(cause)) return false;
    this.#endsAt.set(cause, this.#clock.now() + delayMs);
    this.#awaitEnd();
    return true;
  }

  #awaitEnd(): void {
    this.#clock.clearTimeout(this.#drainTimer);
    const [first] = [...this.#endsAt].sort(([, a], [, b]) => a - b);
    if (first === undefined) return;
    const [cause, at] = first;
    this.#drainTimer = this.#clock.setTimeout(() => this.end(cause), at - this.#clock.now());
  }

  sendDrain(graceMs: number): void {
    this.send('drain', { graceMs, recovery: 'resolve-director' });
  }

  pong(t: number): { roundTripMs: number } | null {
    this.#lastPongAt = this.#peerTime.now();
    const ping = this.#ping;
    if (ping === null || ping.t !== t) return null;
    this.#ping = null;
    const roundTripMs = this.#clock.now() - ping.at;
    return roundTripMs <= LIMITS.maxPingRoundTripMs ? { roundTripMs } : null;
  }

  /** Writes to the current socket. A host that lets its control pile up unread loses it. */
  send<T extends Parameters<typeof cellFrames.write>[0]>(type: T, fields: Omit<CellFrameOf<T>, 'type'>): boolean {
    const socket = this.#socket;
    if (socket === null || !socket.open) return false;
    if (socket.send(cellFrames.write(type, fields as never))) return true;
    this.closeSocket('relay queue limit exceeded');
    return false;
  }

  /** Closes the socket alone: the session is orphaned, as if the host had lost it. */
  closeSocket(reason: CloseReason): void {
    const socket = this.#socket;
    if (socket === null) return;
    this.#socket = null;
    socket.handle({});
    socket.close(reason);
    this.#lostSocket(CLOSE_REASONS[reason], reason);
  }

  /** The end, once: the socket is let go, then the phones, then the seat. */
  end(cause: EndCause): void {
    const before = this.#state;
    if (!this.#fire('ended') || before === 'proving') return;
    this.#stopTicking?.();
    this.#peerTime.clearTimeout(this.#graceTimer);
    this.#clock.clearTimeout(this.#drainTimer);
    const reasons = END_REASONS[cause];
    const socket = this.#socket;
    this.#socket = null;
    if (socket !== null && reasons.control !== null) {
      socket.handle({});
      socket.close(reasons.control);
      this.#reportClose(reasons.control, cause);
    }
    for (const connection of [...this.connections.values()]) {
      connection.end(connection.active ? reasons.spliced : reasons.pending);
    }
    const ownCode = reasons.control === null ? this.#lostCode : CLOSE_REASONS[reasons.control];
    const closeCode = this.#demoted ? CLOSE.WRONG_CELL : ownCode;
    this.#effects.ended(this, { cause, closeCode, closing: socket });
  }

  /** For a control that has not proved itself: says why it is refused. */
  refuse(reason: CloseReason): void {
    const socket = this.#socket;
    if (socket === null || !this.#fire('ended')) return;
    this.#socket = null;
    socket.handle({});
    socket.close(reason);
    this.#reportClose(reason, 'refused');
  }

  /** A control that has not proved itself has lost its socket. */
  abandon(): void {
    if (this.#state !== 'proving') return;
    this.#socket = null;
    this.#fire('socket-lost');
  }

  #listen(): void {
    const socket = this.#socket;
    if (socket === null) return;
    socket.handle({
      message: (data, isBinary) => this.#effects.message(this, socket, data, isBinary),
      closed: (code, reason) => {
        // A socket that was replaced takes nothing with it.
        if (this.#socket !== socket) return;
        this.#socket = null;
        this.#lostSocket(code, reason);
      },
    });
  }

  #lostSocket(code: number, reason: string): void {
    this.#lostCode = code;
    this.#effects.closed(this, { code, reason, cause: 'socket-lost' });
    if (code === 1000 && isHostCloseReason(reason)) {
      this.end('signed-out');
      return;
    }
    if (!this.#fire(this.#drained ? 'socket-lost-drained' : 'socket-lost')) return;
    this.#peerTime.clearTimeout(this.#graceTimer);
    this.#graceTimer = this.#peerTime.setTimeout(() => this.end('orphan-expired'), LIMITS.orphanGraceMs);
  }

  #tick(): void {
    const action = decideTick({
      state: this.#socket === null ? 'orphaned' : this.#state,
      now: this.#clock.now(),
      wallNow: this.#clock.wallNow(),
      silentMs: this.#peerTime.now() - this.#lastPongAt,
      tokenExpiresAt: this.identity.expiresAt,
      leaseUntil: this.#leaseUntil,
    });
    if (action === 'silence') this.closeSocket('control silence timeout');
    else if (action === 'auth-expired') this.end('auth-expired');
    else if (action === 'lease-expired') this.drain(0, 'lease-expired');
    else if (action !== 'nothing') {
      if (action === 'token-expired') this.#fire('token-expired');
      this.#sendPing();
    }
    if (this.#state !== 'closed') this.#effects.tick(this);
  }

  #sendPing(): void {
    const t = Math.floor(this.#clock.wallNow());
    this.#ping = { t, at: this.#clock.now() };
    this.send('ping', { t });
  }

  #reportClose(reason: CloseReason, cause: ControlClose['cause']): void {
    this.#effects.closed(this, { code: CLOSE_REASONS[reason], reason, cause });
  }

  #fire(event: ControlEvent): boolean {
    const next = CONTROL_TRANSITIONS[this.#state][event];
    if (next === null) return false;
    const changed = next !== this.#state;
    this.#state = next;
    if (changed && !TOLD_OTHERWISE.has(event)) this.#effects.stepped(this);
    return true;
  }
}
