import { type CloseSeen, type DialOptions, PATIENCE_MS, Peer } from './peer.ts';
import { phoneProblem } from './shapes.ts';

export interface Hello {
  type: 'relay-hello';
  ok: boolean;
  code?: number;
  credentialKind?: 'invite' | 'resume';
  leaseExpiresAt?: number;
  acceptedCredentialVersion?: number;
  acceptedAs?: 'current' | 'grace';
  resumeExpiresAt?: number;
  graceExpiresAt?: number;
}

export interface Moved {
  type: 'relay-moved';
  v: 1;
  cellUrl: string;
  assignmentEpoch: number;
}

/** A phone at the level of frames. */
export class RawPhone {
  readonly peer: Peer;

  constructor(peer: Peer) {
    this.peer = peer;
  }

  /** Upgrade only: silent until told to speak. */
  static async upgrade(origin: string, relayHostId: string, options: DialOptions = {}): Promise<RawPhone> {
    return new RawPhone(await Peer.dial(`${origin}/v1/connect/${relayHostId}`, options));
  }

  /** Upgrade and first frame; the answer is the caller's to take. */
  static async knock(
    origin: string,
    relayHostId: string,
    credential: string,
    options: DialOptions = {},
  ): Promise<RawPhone> {
    const phone = await RawPhone.upgrade(origin, relayHostId, options);
    phone.auth(credential);
    return phone;
  }

  auth(credential: string): void {
    this.peer.sendJson({ type: 'relay-auth', v: 1, mode: 'connect', credential });
  }

  /** The relay's first frame, checked against the wire's shapes. */
  async answer(timeoutMs = PATIENCE_MS): Promise<Hello | Moved> {
    const frame = await this.peer.next(timeoutMs);
    if (frame.binary) throw new Error('the relay answered a phone in binary');
    const message = JSON.parse(frame.data.toString());
    const problem = phoneProblem(message);
    if (problem !== null) throw new Error(`the relay's answer: ${problem}: ${frame.data.toString()}`);
    return message;
  }

  async hello(timeoutMs = PATIENCE_MS): Promise<Hello> {
    const answer = await this.answer(timeoutMs);
    if (answer.type !== 'relay-hello') throw new Error(`relay-hello was due, got ${JSON.stringify(answer)}`);
    return answer;
  }

  /** A refusal: the hello's code and the close after it, which must agree. */
  async refused(timeoutMs = PATIENCE_MS): Promise<CloseSeen> {
    const hello = await this.hello(timeoutMs);
    const close = await this.peer.close();
    if (hello.ok || hello.code !== close.code) {
      throw new Error(`hello ${JSON.stringify(hello)} before close ${close.code} ${close.reason}`);
    }
    return close;
  }
}
