import { Buffer } from 'node:buffer';
import type { HostIdentity } from './identity.ts';
import { newId } from './identity.ts';
import { type DialOptions, type Frame, PATIENCE_MS, Peer } from './peer.ts';
import { type ChallengeFrame, type OpenedChallenge, openChallenge, u64 } from './proof.ts';
import { controlProblem } from './shapes.ts';

export type Message = Record<string, unknown> & { type: string };

export interface HelloAck {
  generation: number;
  controlResumeSecret: string;
  leaseExpiresAt: number;
  activeConnIds: string[];
  pendingConns: { connId: string; connTicket: string; kind?: string; relayDeviceId?: string }[];
}

export interface ConnOpen {
  connId: string;
  connTicket: string;
  kind: 'invite' | 'resume';
  relayDeviceId: string;
  attachDeadlineMs: number;
}

export interface HostDial extends DialOptions {
  origin: string;
  /** The origin the host believes it dialled, where a port of the same machine stands for it. */
  relayOrigin?: string;
  token: string;
  epoch: number;
  capabilities?: string;
  /** Rebind: what the last ack said. */
  previous?: { generation: number; secret: string };
  /** Leave the cell's pings unanswered. */
  mute?: boolean;
  /** The host's wall clock; the machine's when absent. */
  now?: () => number;
  /** Keys that replace those of a good hello. */
  hello?: Record<string, unknown>;
}

/** A desktop host at the level of frames. Every control message it is sent is checked against the wire's shapes. */
export class RawHost {
  readonly identity: HostIdentity;
  readonly peer: Peer;
  readonly origin: string;
  readonly problems: string[] = [];
  ack: HelloAck | null = null;
  pings: number[] = [];
  mute: boolean;

  constructor(identity: HostIdentity, peer: Peer, options: HostDial) {
    this.identity = identity;
    this.peer = peer;
    this.origin = options.origin;
    this.mute = options.mute === true;
    peer.tap((frame) => this.#see(frame));
  }

  /** Upgrade only: the hello is the caller's. */
  static async upgrade(identity: HostIdentity, options: HostDial): Promise<RawHost> {
    const headers = {
      authorization: `Bearer ${options.token}`,
      ...(options.capabilities === undefined ? {} : { 'x-orca-host-capabilities': options.capabilities }),
      ...options.headers,
    };
    const peer = await Peer.dial(`${options.origin}/v1/host/control`, { ...options, headers });
    return new RawHost(identity, peer, options);
  }

  /** Upgrade, hello and proof; resolves at the ack. Rejects with what closed the socket instead. */
  static async connect(identity: HostIdentity, options: HostDial): Promise<RawHost> {
    const host = await RawHost.upgrade(identity, options);
    host.hello(options);
    await host.prove(options);
    return host;
  }

  #see(frame: Frame): boolean {
    if (frame.binary) {
      this.problems.push('binary control frame');
      return false;
    }
    const message = JSON.parse(frame.data.toString()) as Message;
    const problem = controlProblem(message);
    if (problem !== null) this.problems.push(problem);
    if (frame.data.length >= 64 * 1024) this.problems.push(`control message of ${frame.data.length} bytes`);
    if (message.type !== 'ping') return false;
    this.pings.push(Number(message.t));
    if (!this.mute) this.send({ type: 'pong', t: message.t });
    return true;
  }

  send(message: Message): void {
    this.peer.sendJson(message);
  }

  hello(options: HostDial): void {
    const { previous } = options;
    this.send({
      type: 'host-hello',
      v: 1,
      relayHostId: this.identity.relayHostId,
      assignmentEpoch: options.epoch,
      hostPublicKeyB64: Buffer.from(this.identity.publicKey).toString('base64'),
      appVersion: '1.4.0',
      ...(previous === undefined
        ? {}
        : { previousGeneration: previous.generation, controlResumeSecret: previous.secret }),
      ...options.hello,
    });
  }

  async challenge(): Promise<{ frame: ChallengeFrame; opened: OpenedChallenge }> {
    const frame = (await this.expect('host-challenge')) as unknown as ChallengeFrame;
    return { frame, opened: openChallenge(frame, this.identity.secretKey) };
  }

  /** Checks the challenge as a desktop does, answers it and takes the ack. */
  async prove(options: HostDial): Promise<HelloAck> {
    const { frame, opened } = await this.challenge();
    this.#checkChallenge(frame, opened, options);
    this.send({ type: 'host-challenge-ack', challengeId: frame.challengeId, proofB64: opened.proofB64 });
    this.ack = (await this.expect('host-hello-ack')) as unknown as HelloAck;
    return this.ack;
  }

  #checkChallenge(frame: ChallengeFrame, opened: OpenedChallenge, options: HostDial): void {
    const { fields } = opened;
    const issuedAt = Number(fields.issuedAt.readBigUInt64BE());
    const expiresAt = Number(fields.expiresAt.readBigUInt64BE());
    const now = (options.now ?? Date.now)();
    const wanted: [string, boolean][] = [
      ['relayOrigin', fields.relayOrigin.toString() === (options.relayOrigin ?? options.origin)],
      ['challengeId', fields.challengeId.toString() === frame.challengeId],
      ['userId', fields.userId.toString() === this.identity.userId],
      ['profileId', fields.profileId.toString() === this.identity.profileId],
      ['organizationId', fields.organizationId.toString() === (this.identity.organizationId ?? '')],
      ['relayHostId', fields.relayHostId.toString() === this.identity.relayHostId],
      ['hostPublicKey', fields.hostPublicKey.equals(this.identity.publicKey)],
      ['assignmentEpoch', fields.assignmentEpoch.equals(u64(options.epoch))],
      ['previousGeneration', fields.previousGeneration.equals(previousGenerationBytes(options))],
      ['resumeRequested', fields.resumeRequested[0] === (options.previous === undefined ? 0 : 1)],
      ['expiresAt', expiresAt === frame.expiresAt],
      ['window', expiresAt - issuedAt > 0 && expiresAt - issuedAt <= 10_000],
      ['freshness', issuedAt <= now + 30_000 && expiresAt >= now - 30_000],
    ];
    const wrong = wanted.filter(([, good]) => !good).map(([name]) => name);
    if (wrong.length > 0) throw new Error(`a desktop would reject this challenge for: ${wrong.join(', ')}`);
  }

  /** The next message of a type, within the time. */
  async expect(type: string, timeoutMs = PATIENCE_MS): Promise<Message> {
    const frame = await this.peer.take(type, (held) => typeOf(held) === type, timeoutMs);
    return JSON.parse(frame.data.toString()) as Message;
  }

  async connOpen(timeoutMs = PATIENCE_MS): Promise<ConnOpen> {
    return (await this.expect('conn-open', timeoutMs)) as unknown as ConnOpen;
  }

  /** Messages of a type that nobody has taken yet. */
  waiting(type: string): Message[] {
    return this.peer
      .unread()
      .filter((frame) => typeOf(frame) === type)
      .map((frame) => JSON.parse(frame.data.toString()) as Message);
  }

  /** Sends a command and resolves with whatever answers its reqId, a control-error included. */
  async request(message: Message, timeoutMs = PATIENCE_MS): Promise<Message> {
    this.send(message);
    const reqId = message.reqId;
    const frame = await this.peer.take(
      `answer to ${message.type}`,
      (held) => (JSON.parse(held.data.toString()) as Message).reqId === reqId,
      timeoutMs,
    );
    return JSON.parse(frame.data.toString()) as Message;
  }

  async createInvite(relayDeviceId: string): Promise<{ inviteToken: string; expiresAt: number; maxAttempts: number }> {
    const reply = await this.request({ type: 'invite-create', reqId: newId('invite'), relayDeviceId });
    if (reply.type !== 'invite-created') throw new Error(`invite-create answered ${JSON.stringify(reply)}`);
    return reply as unknown as { inviteToken: string; expiresAt: number; maxAttempts: number };
  }

  /** What a rebind has to bring. */
  get previous(): { generation: number; secret: string } {
    if (this.ack === null) throw new Error('no ack yet');
    return { generation: this.ack.generation, secret: this.ack.controlResumeSecret };
  }

  /** Opens the data socket of a connection and authenticates it; resolves once the frame is sent. */
  async attach(
    open: { connId: string; connTicket: string },
    overrides: Record<string, unknown> & { source?: string } = {},
  ): Promise<Peer> {
    const { source, ...frame } = overrides;
    const options = source === undefined ? {} : { source };
    const peer = await Peer.dial(`${this.origin}/v1/host/data/${encodeURIComponent(open.connId)}`, options);
    peer.sendJson({
      type: 'host-data-auth',
      v: 1,
      connTicket: open.connTicket,
      generation: this.ack?.generation,
      ...frame,
    });
    return peer;
  }

  drop(): void {
    this.peer.drop();
  }
}

function previousGenerationBytes(options: HostDial): Buffer {
  const held = options.hello?.previousGeneration ?? options.previous?.generation;
  return typeof held === 'number' ? u64(held) : Buffer.alloc(0);
}

function typeOf(frame: Frame): string {
  return frame.binary ? 'binary' : String((JSON.parse(frame.data.toString()) as Message).type);
}
