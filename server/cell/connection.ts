import {
  type CloseReason,
  type ConnectionKind,
  LIMITS,
  newToken,
  type PendingConn,
  SPLICE_TRANSITIONS,
  type SpliceEvent,
  type SpliceState,
} from '../../contract/index.ts';
import type { Clock, Clocks, Timer } from '../clock.ts';
import type { ControlSession } from './control-session.ts';
import type { PeerSocket } from './peer-socket.ts';
import { refusePhone } from './phone-hello.ts';

/** The credential a phone came with, as the database accepted it. */
export type Accepted =
  | { kind: 'invite'; relayDeviceId: string; tokenHash: string; leaseExpiresAt: number; reservedUntil: number }
  | {
      kind: 'resume';
      relayDeviceId: string;
      leaseExpiresAt: number;
      credentialVersion: number;
      acceptedAs: 'current' | 'grace';
      resumeExpiresAt: number;
      graceExpiresAt: number | null;
    };

/** The two sockets once they are one stream; closing it closes both. */
export interface SplicedPair {
  close(reason: CloseReason): void;
}

/** What a connection gives back at its end. */
export interface ConnectionEffects {
  /** Once. `spliced` tells whether the phone was ever connected. */
  ended(connection: Connection, spliced: boolean): void;
}

/**
 * One phone's connection to its host: pending from `conn-open` until the host's data socket comes, then active. It is the
 * basis of an install or a confirmation for as long as it is active and within its deadline, and it dies with the
 * generation of the control it was opened under.
 */
export class Connection {
  readonly connId: string;
  readonly ticket = newToken();
  readonly accepted: Accepted;
  readonly session: ControlSession;
  readonly phone: PeerSocket;
  readonly openedAt: number;
  /** An invite that an install has used up has nothing to give back. */
  consumed = false;
  /** When the host was told, on the clock; for the log. */
  toldAt = 0;
  #state: SpliceState = 'pre-auth-admitted';
  #pair: SplicedPair | null = null;
  #basisUntil: number | null = null;
  #attachTimer: Timer | undefined;
  readonly #clock: Clock;
  readonly #peerTime: Clock;
  readonly #effects: ConnectionEffects;

  constructor(
    { clock, peerTime }: Clocks,
    effects: ConnectionEffects,
    opened: { connId: string; accepted: Accepted; session: ControlSession; phone: PeerSocket; openedAt: number },
  ) {
    this.#clock = clock;
    this.#peerTime = peerTime;
    this.#effects = effects;
    this.connId = opened.connId;
    this.accepted = opened.accepted;
    this.session = opened.session;
    this.phone = opened.phone;
    this.openedAt = opened.openedAt;
    this.#step('credential-opened');
  }

  get state(): SpliceState {
    return this.#state;
  }

  get kind(): ConnectionKind {
    return this.accepted.kind;
  }

  get pending(): boolean {
    return (
      this.#state === 'host-notified' || this.#state === 'attach-pending' || this.#state === 'credential-lease-reserved'
    );
  }

  get active(): boolean {
    return !this.pending && this.#state !== 'teardown';
  }

  /** The host has been told; it has 10 s to bring its data socket. */
  awaitHost(): void {
    this.toldAt = this.#clock.now();
    this.#step('host-told');
    this.#step('attach-awaited');
    this.#attachTimer = this.#peerTime.setTimeout(() => this.end('host attach timeout'), LIMITS.hostAttachDeadlineMs);
  }

  /** From here on the ticket is spent. */
  attached(): void {
    this.#peerTime.clearTimeout(this.#attachTimer);
    this.#step('host-data-accepted');
  }

  /** Both directions forward, and the phone has its hello. */
  spliced(pair: SplicedPair): void {
    this.#pair = pair;
    this.#step('phone-acknowledged');
    this.#step('forwarding');
    this.#basisUntil =
      this.accepted.kind === 'invite'
        ? this.accepted.reservedUntil
        : this.#clock.now() + LIMITS.resumeConfirmationDeadlineMs;
    this.#step('basis-held');
  }

  /** What vouches for a `relay-basis` install: null when this connection does not, or no longer. */
  inviteBasis(relayDeviceId: string): { conn_id: string; token_hash: string } | null {
    if (this.accepted.kind !== 'invite' || this.accepted.relayDeviceId !== relayDeviceId || !this.#isBasis())
      return null;
    return { conn_id: this.connId, token_hash: this.accepted.tokenHash };
  }

  /** What a confirmation confirms: null when this connection is none, or too old. */
  resumeBasis(): { relay_device_id: string; credential_version: number } | null {
    if (this.accepted.kind !== 'resume' || !this.#isBasis()) return null;
    return { relay_device_id: this.accepted.relayDeviceId, credential_version: this.accepted.credentialVersion };
  }

  #isBasis(): boolean {
    return this.#state === 'e2ee-confirmable' && this.#basisUntil !== null && this.#clock.now() < this.#basisUntil;
  }

  /** How a rebind restates it. Details go only to a host that asked for them. */
  restate(withDetails: boolean): PendingConn {
    const bare = { connId: this.connId, connTicket: this.ticket };
    return withDetails ? { ...bare, kind: this.kind, relayDeviceId: this.accepted.relayDeviceId } : bare;
  }

  /** The pair has stopped forwarding by itself, and closes its sockets by itself. */
  spliceEnded(): void {
    this.#pair = null;
    if (this.#state === 'teardown') return;
    this.#state = 'teardown';
    this.#effects.ended(this, true);
  }

  /** Once, whoever comes first. A pending phone hears the refusal as a hello too. */
  end(reason: CloseReason): void {
    if (this.#state === 'teardown') return;
    const pair = this.#pair;
    this.#peerTime.clearTimeout(this.#attachTimer);
    this.#state = 'teardown';
    this.#pair = null;
    this.#effects.ended(this, pair !== null);
    if (pair !== null) pair.close(reason);
    else refusePhone(this.phone, reason);
  }

  #step(event: SpliceEvent): void {
    const next = SPLICE_TRANSITIONS[this.#state][event];
    if (next === null) throw new Error(`connection: ${event} in ${this.#state}`);
    this.#state = next;
  }
}
