import { CLOSE } from '../contract/close-codes.ts';
import type { RelayInvite } from './invite.ts';
import { type AcceptedHello, type DialOutcome, dialPhone } from './phone-dial.ts';
import type { Ports } from './ports.ts';
import type { SocketEnd } from './socket.ts';
import type { MessageStream } from './stream.ts';

/** A first connection, by invite. What is needed to come back is `endpoint` and a resume credential. */
export interface PairedConnection {
  readonly endpoint: { cellUrl: string; assignmentEpoch: number };
  readonly hello: AcceptedHello;
  readonly stream: MessageStream;
}

/**
 * Why pairing did not come about: `invite-refused` (spent, expired, or in its 2 s pause after an attempt that broke off),
 * `host-offline`, `busy` (too many connections, or the relay is overloaded), `moved` (the host is being moved and no
 * director knew better yet), `unreachable`.
 */
export type PairingFailure = 'invite-refused' | 'host-offline' | 'busy' | 'moved' | 'unreachable';

export class PairingError extends Error {
  readonly failure: PairingFailure;
  readonly end: SocketEnd;

  constructor(failure: PairingFailure, end: SocketEnd) {
    super(`pairing failed: ${failure} (${end.status ?? end.code} ${end.reason})`.trim());
    this.name = 'PairingError';
    this.failure = failure;
    this.end = end;
  }
}

const FAILURES: Readonly<Record<number, PairingFailure>> = {
  [CLOSE.BAD_OUTER_CREDENTIAL]: 'invite-refused',
  [CLOSE.HOST_OFFLINE]: 'host-offline',
  [CLOSE.PEER_DROPPED]: 'busy',
  [CLOSE.WRONG_CELL]: 'moved',
  [CLOSE.LIMIT_EXCEEDED]: 'busy',
  [CLOSE.DRAINING]: 'moved',
};

/** After these the invite is asked about at the director: the host is not on this cell, or nobody answers there. */
const ASK_DIRECTOR: ReadonlySet<number> = new Set([CLOSE.WRONG_CELL, CLOSE.DRAINING]);

/**
 * Connects with an invite, at most three dials: the cell it names; where that is the wrong one, a draining one or not
 * there, the director it names; then the cell the director says. Never repeated by itself: an attempt that got as far
 * as the host counts against the invite's five.
 * @throws PairingError
 */
export async function pair(ports: Ports, invite: RelayInvite, signal: AbortSignal): Promise<PairedConnection> {
  const dial = (origin: string) =>
    dialPhone(ports, { origin, relayHostId: invite.relayHostId, credential: invite.inviteToken }, signal);
  const known = { cellUrl: invite.cellUrl, assignmentEpoch: invite.assignmentEpoch };
  const first = await dial(known.cellUrl);
  if (first.kind !== 'ended') return accept(first, known);
  if (signal.aborted || (first.answered && !ASK_DIRECTOR.has(first.end.code))) throw failed(first);

  const asked = await dial(invite.directorUrl);
  // Only a strictly newer epoch is believed: an old message, or a lagging director, must not send a phone back.
  if (asked.kind === 'moved' && asked.assignmentEpoch > known.assignmentEpoch) {
    const endpoint = { cellUrl: asked.cellUrl, assignmentEpoch: asked.assignmentEpoch };
    return accept(await dial(endpoint.cellUrl), endpoint);
  }
  // A relay in one process is both: the path is its cell's.
  if (asked.kind === 'hello') return accept(asked, { ...known, cellUrl: invite.directorUrl });
  throw failed(asked.kind === 'ended' && asked.answered && !ASK_DIRECTOR.has(asked.end.code) ? asked : first);
}

function accept(outcome: DialOutcome, endpoint: PairedConnection['endpoint']): PairedConnection {
  // A cell has no say in where a host is.
  if (outcome.kind === 'moved') throw new PairingError('moved', { code: CLOSE.WRONG_CELL, reason: 'moved by a cell' });
  if (outcome.kind === 'ended') throw failed(outcome);
  if (outcome.hello.credentialKind !== 'invite') {
    outcome.stream.terminate();
    throw new PairingError('invite-refused', { code: 1002, reason: 'not accepted as an invite' });
  }
  return { endpoint, hello: outcome.hello, stream: outcome.stream };
}

function failed(outcome: Extract<DialOutcome, { kind: 'ended' }>): PairingError {
  return new PairingError(FAILURES[outcome.end.code] ?? 'unreachable', outcome.end);
}
