import { CAPABILITIES, type CellFrame, type CellFrameOf, cellFrames, hostFrames } from '../contract/control.ts';
import { answerChallenge } from '../contract/host-proof.ts';
import type { RelayTokenClaims } from '../contract/http.ts';
import { LIMITS } from '../contract/limits.ts';
import type { Timer } from './clock.ts';
import { type ControlReply, type ControlRequest, ControlRequestError, ControlRequests } from './control-requests.ts';
import type { HostKeys, HostNames } from './host-keys.ts';
import { CLIENT_LIMITS } from './limits.ts';
import type { Ports } from './ports.ts';
import { type Message, type RelaySocket, type SocketEnd, webSocketUrl } from './socket.ts';

export interface ControlTarget {
  cellUrl: string;
  assignmentEpoch: number;
  lease: string;
}

/** What a rebind names: the session it wants to go on with. */
export interface ControlResume {
  previousGeneration: number;
  controlResumeSecret: string;
}

export interface ControlIdentity extends HostNames {
  keys: HostKeys;
  appVersion: string;
  relayToken: string;
  claims: RelayTokenClaims;
}

export type HelloAck = CellFrameOf<'host-hello-ack'>;

export interface ControlHandlers {
  ready(ack: HelloAck): void;
  connOpen(frame: CellFrameOf<'conn-open'>): void;
  drain(graceMs: number): void;
  warning(text: string): void;
  /** Exactly once. `resumeRefused` when the cell does not go on with the session that the hello named. */
  ended(end: SocketEnd, resumeRefused: boolean): void;
}

type Phase = 'hello' | 'proof' | 'active' | 'over';

/** One control channel, from its dial to its end: hello, proof, requests, liveness. */
export class HostControl {
  readonly #ports: Ports;
  readonly #target: ControlTarget;
  readonly #resume: ControlResume | undefined;
  readonly #handlers: ControlHandlers;
  readonly #socket: RelaySocket;
  readonly #requests: ControlRequests;
  readonly #identity: ControlIdentity;
  #phase: Phase = 'hello';
  #resumeRefused = false;
  readonly #opening: Timer;
  #watch: Timer | null = null;
  #probe: Timer | null = null;
  #unanswered = 0;
  #lastInbound: number;

  constructor(
    ports: Ports,
    identity: ControlIdentity,
    target: ControlTarget,
    resume: ControlResume | undefined,
    handlers: ControlHandlers,
  ) {
    this.#ports = ports;
    this.#identity = identity;
    this.#target = target;
    this.#resume = resume;
    this.#handlers = handlers;
    this.#lastInbound = ports.clock.now();
    this.#requests = new ControlRequests(ports.clock, () => this.#startProbe());
    this.#opening = ports.clock.after(CLIENT_LIMITS.controlOpenMs, () => this.terminate());
    this.#socket = ports.openSocket(
      {
        url: webSocketUrl(target.cellUrl, '/v1/host/control'),
        headers: {
          authorization: `Bearer ${identity.relayToken}`,
          'x-orca-host-capabilities': CAPABILITIES.join(','),
          'x-orca-relay-assignment-lease': target.lease,
        },
        maxMessageBytes: LIMITS.maxControlMessageToHostBytes,
      },
      {
        opened: () => this.#sendHello(),
        message: (message) => this.#receive(message),
        ended: (end) => this.#finish(end),
        pong: () => this.#heard(),
      },
    );
  }

  get waiting(): number {
    return this.#requests.size;
  }

  /** Rejects with `ControlRequestError`; 10 s. */
  request<T extends ControlRequest>(
    type: T,
    fields: Parameters<typeof hostFrames.write<T>>[1] & { reqId: string },
  ): Promise<ControlReply<T>> {
    if (this.#phase !== 'active') return Promise.reject(new ControlRequestError('not_connected'));
    const text = hostFrames.write(type, fields);
    return this.#requests.expect(type, fields.reqId, () => this.#socket.send(text));
  }

  refreshToken(relayJwt: string): void {
    if (this.#phase === 'active') this.#socket.send(hostFrames.write('auth-refresh', { relayJwt }));
  }

  /** The one close that the relay remembers: phones learn that the user signed out. */
  signOut(): void {
    this.#socket.close(1000, 'signed-out');
  }

  terminate(): void {
    this.#socket.terminate();
  }

  #sendHello(): void {
    this.#socket.send(
      hostFrames.write('host-hello', {
        v: 1,
        relayHostId: this.#identity.relayHostId,
        assignmentEpoch: this.#target.assignmentEpoch,
        hostPublicKeyB64: this.#identity.hostPublicKeyB64,
        appVersion: this.#identity.appVersion,
        ...this.#resume,
      }),
    );
  }

  #receive(message: Message): void {
    if (this.#phase === 'over') return;
    this.#heard();
    if (typeof message !== 'string') {
      this.#handlers.warning('binary frame on the control channel');
      this.terminate();
      return;
    }
    const read = cellFrames.read(message);
    if (read.ok) this.#handle(read.frame);
    else if (this.#phase === 'active') this.#handlers.warning(`control message ignored: ${read.error}`);
    else this.terminate();
  }

  #handle(frame: CellFrame): void {
    if (this.#phase === 'hello') {
      if (frame.type === 'host-challenge') this.#prove(frame);
      else this.terminate();
      return;
    }
    if (this.#phase === 'proof') {
      if (frame.type === 'host-hello-ack') this.#activate(frame);
      else this.terminate();
      return;
    }
    switch (frame.type) {
      case 'ping':
        this.#socket.send(hostFrames.write('pong', { t: frame.t }));
        return;
      case 'conn-open':
        this.#handlers.connOpen(frame);
        return;
      case 'drain':
        this.#handlers.drain(frame.graceMs);
        return;
      case 'host-challenge':
      case 'host-hello-ack':
        this.#handlers.warning(`unexpected ${frame.type}`);
        return;
      default:
        if (!this.#requests.settle(frame)) this.#handlers.warning(`nobody waits for this ${frame.type}`);
    }
  }

  #prove(frame: CellFrameOf<'host-challenge'>): void {
    const { claims, keys, relayHostId } = this.#identity;
    const answer = answerChallenge(
      frame,
      keys.secretKey,
      {
        relayOrigin: this.#target.cellUrl,
        userId: claims.sub,
        profileId: claims.prof,
        organizationId: claims.org ?? null,
        relayHostId,
        hostPublicKey: keys.publicKey,
        assignmentEpoch: this.#target.assignmentEpoch,
        previousGeneration: this.#resume?.previousGeneration,
        // The cell's own verdict must be ours: a fresh generation handed to a rebind would strand open connections.
        resumeRequested: this.#resume !== undefined,
      },
      this.#ports.clock.now(),
    );
    if (answer.ok) {
      this.#phase = 'proof';
      const { challengeId } = frame;
      this.#socket.send(hostFrames.write('host-challenge-ack', { challengeId, proofB64: answer.proofB64 }));
      return;
    }
    this.#resumeRefused = this.#resume !== undefined && answer.refusal === 'facts';
    if (!this.#resumeRefused) this.#handlers.warning(`challenge refused: ${answer.refusal}`);
    this.#socket.close(4401, 'invalid host challenge');
  }

  #activate(ack: HelloAck): void {
    if (this.#resume && ack.generation !== this.#resume.previousGeneration) {
      this.#resumeRefused = true;
      this.terminate();
      return;
    }
    this.#phase = 'active';
    this.#opening.cancel();
    this.#armWatch();
    this.#handlers.ready(ack);
  }

  #heard(): void {
    this.#lastInbound = this.#ports.clock.now();
    this.#unanswered = 0;
    this.#probe?.cancel();
    this.#probe = null;
  }

  #armWatch(): void {
    this.#watch = this.#ports.clock.after(LIMITS.controlPingIntervalMs, () => {
      if (this.#ports.clock.now() - this.#lastInbound > LIMITS.controlSilenceTimeoutMs) this.terminate();
      else this.#armWatch();
    });
  }

  /** A request without an answer is the first sign of a dead path: find out in half a minute, not in 75 s. */
  #startProbe(): void {
    if (this.#phase !== 'active' || this.#probe) return;
    if (this.#unanswered >= CLIENT_LIMITS.probeMaxUnanswered) {
      this.terminate();
      return;
    }
    this.#unanswered += 1;
    this.#socket.ping();
    this.#probe = this.#ports.clock.after(CLIENT_LIMITS.probeIntervalMs, () => {
      this.#probe = null;
      this.#startProbe();
    });
  }

  #finish(end: SocketEnd): void {
    const refusedByClose = this.#phase !== 'active' && this.#resume !== undefined && end.code === 4401;
    this.#phase = 'over';
    for (const timer of [this.#opening, this.#watch, this.#probe]) timer?.cancel();
    this.#requests.failAll('control_lost');
    this.#handlers.ended(end, this.#resumeRefused || refusedByClose);
  }
}
