import { randomUUID } from 'node:crypto';
import { base64 } from '@scure/base';
import {
  type CloseReason,
  cellFrames,
  deriveRelayHostId,
  type HostFrameOf,
  hostFrames,
  type IssuedChallenge,
  issueChallenge,
  LIMITS,
  proofMatches,
} from '../../contract/index.ts';
import type { LeaseClass } from '../tokens.ts';
import { activate } from './activation.ts';
import type { CellCore } from './cell-core.ts';
import type { ControlSession } from './control-session.ts';
import { awaitFirstFrame } from './first-frame.ts';
import { guard } from './guard.ts';
import { groundOf, type Shown } from './hello-ground.ts';
import { agreeNatively, WeakKeyError } from './key-agreement.ts';
import type { PeerSocket } from './peer-socket.ts';

/** What a control says of itself and has yet to prove. */
export interface Hello {
  frame: HostFrameOf<'host-hello'>;
  /** The seated session it asks to continue, which has the secret it showed. */
  base: ControlSession | null;
  /** What it may be let in by without the database; null where the database has said yes. */
  shown: Shown | null;
}

/** The first frames of a control (`wire` 1.4, 1.8): hello within 2 s, challenge, proof within 10 s, then its activation. */
export function beginHandshake(
  core: CellCore,
  session: ControlSession,
  socket: PeerSocket,
  lease: string | undefined,
): void {
  if (core.closing() || core.drain.ordered) {
    session.refuse('relay draining');
    return;
  }
  awaitFirstFrame(core.peerTime, socket, {
    late: 'host hello timeout',
    binary: 'host hello must be text',
    text: (text) => readHello(core, session, socket, text, lease),
    refuse: (reason) => refuse(core, session, reason),
    gone: () => session.abandon(),
  });
}

function readHello(
  core: CellCore,
  session: ControlSession,
  socket: PeerSocket,
  text: string,
  lease: string | undefined,
): void {
  const read = hostFrames.read(text);
  if (!read.ok || read.frame.type !== 'host-hello') {
    refuse(core, session, 'invalid host hello');
    return;
  }
  const hello = read.frame;
  const publicKey = base64.decode(hello.hostPublicKeyB64);
  const derived = deriveRelayHostId(publicKey);
  if (hello.relayHostId !== derived || session.identity.relayHostId !== derived) {
    refuse(core, session, 'host key binding mismatch');
    return;
  }
  const inspected = inspectLease(core, session, hello.assignmentEpoch, lease);
  guard(core.log, socket, inspected);
  guard(core.log, socket, admit(core, session, socket, { hello, publicKey, inspected }));
}

/** A lease that disagrees with the row says something about a director; it admits nobody unless the flags say so. */
async function inspectLease(
  core: CellCore,
  { host }: ControlSession,
  epoch: number,
  lease: string | undefined,
): Promise<LeaseClass> {
  const found = await core.inspectLease(lease, { ...host, cellId: core.identity.cellId, epoch });
  core.metrics.leaseShadow.inc({ class: found });
  if (found !== 'valid' && found !== 'absent') {
    core.log.info({ event: 'orca_relay_assignment_lease_shadow', class: found });
  }
  return found;
}

interface Introduction {
  hello: HostFrameOf<'host-hello'>;
  publicKey: Uint8Array;
  inspected: Promise<LeaseClass>;
}

/** By what the cell remembers, or by the database. The mode is read once for a hello. */
async function admit(
  core: CellCore,
  session: ControlSession,
  socket: PeerSocket,
  { hello, publicKey, inspected }: Introduction,
): Promise<void> {
  const { raw: mode, flags } = core.modes;
  const epoch = hello.assignmentEpoch;
  const ticket = mode === 'reserve' && flags.ticketCheck === 'enforce' && (await inspected) === 'valid';
  if (!isStillThere(session, socket)) return;
  const shown: Shown = { epoch, ticket, booking: core.book.find(session.host, epoch) ?? null };
  const ground = groundOf(core, session.host, mode, shown);
  if (mode === 'reserve') core.metrics.memoryHellos.inc({ ground });
  if (ground === 'shed') refuse(core, session, 'relay temporarily unavailable');
  else if (ground !== 'database') challenge(core, session, socket, hello, publicKey, shown);
  else await checkSeat(core, session, socket, hello, publicKey);
}

function isStillThere(session: ControlSession, socket: PeerSocket): boolean {
  if (!socket.open) session.abandon();
  return session.state === 'proving';
}

async function checkSeat(
  core: CellCore,
  session: ControlSession,
  socket: PeerSocket,
  hello: HostFrameOf<'host-hello'>,
  publicKey: Uint8Array,
): Promise<void> {
  let seated: boolean;
  try {
    seated = await core.db.call('verify_seat', {
      user_id: session.host.userId,
      relay_host_id: session.host.relayHostId,
      cell_id: core.identity.cellId,
      epoch: hello.assignmentEpoch,
    });
  } catch (error) {
    core.log.warn({ event: 'orca_relay_host_hello_unanswered', error });
    refuse(core, session, 'relay temporarily unavailable');
    return;
  }
  if (!isStillThere(session, socket)) return;
  if (seated) challenge(core, session, socket, hello, publicKey, null);
  else refuse(core, session, 'wrong assignment epoch');
}

/** Null if nobody can hold the key: an agreement with it would give a secret that everybody knows. */
function issue(
  core: CellCore,
  { identity }: ControlSession,
  hello: HostFrameOf<'host-hello'>,
  publicKey: Uint8Array,
  resumeRequested: boolean,
): IssuedChallenge | null {
  const facts = {
    relayOrigin: core.origin(),
    challengeId: randomUUID(),
    issuedAt: Math.floor(core.clock.wallNow()),
    userId: identity.userId,
    profileId: identity.profileId,
    organizationId: identity.organizationId,
    relayHostId: identity.relayHostId,
    hostPublicKey: publicKey,
    assignmentEpoch: hello.assignmentEpoch,
    previousGeneration: hello.previousGeneration,
    resumeRequested,
  };
  try {
    return issueChallenge(facts, agreeNatively);
  } catch (error) {
    if (error instanceof WeakKeyError) return null;
    throw error;
  }
}

function challenge(
  core: CellCore,
  session: ControlSession,
  socket: PeerSocket,
  hello: HostFrameOf<'host-hello'>,
  publicKey: Uint8Array,
  shown: Shown | null,
): void {
  const base = continuedSession(core, session, hello);
  const issued = issue(core, session, hello, publicKey, base !== null);
  if (!issued) {
    refuse(core, session, 'invalid host public key');
    return;
  }
  awaitFirstFrame(core.peerTime, socket, {
    deadlineMs: LIMITS.challengeWindowMs,
    late: 'host proof timeout',
    binary: 'invalid host proof',
    text: (text) => {
      if (!isProof(text, issued)) {
        refuse(core, session, 'invalid host proof');
        return;
      }
      guard(core.log, socket, activate(core, session, socket, { frame: hello, base, shown }));
    },
    refuse: (reason) => refuse(core, session, reason),
    gone: () => session.abandon(),
  });
  socket.send(cellFrames.write('host-challenge', issued.frame));
}

/** The epoch must be the same too: a host that was moved away and back starts anew. */
function continuedSession(
  core: CellCore,
  session: ControlSession,
  hello: HostFrameOf<'host-hello'>,
): ControlSession | null {
  const seated = core.seats.of(session.host);
  if (seated === undefined || seated.epoch !== hello.assignmentEpoch) return null;
  return seated.rebindable(hello.controlResumeSecret) ? seated : null;
}

function isProof(text: string, issued: IssuedChallenge): boolean {
  const read = hostFrames.read(text);
  return (
    read.ok &&
    read.frame.type === 'host-challenge-ack' &&
    read.frame.challengeId === issued.frame.challengeId &&
    proofMatches(issued.expectedProofB64, read.frame.proofB64)
  );
}

function refuse(core: CellCore, session: ControlSession, reason: CloseReason): void {
  core.metrics.authentications.inc({ outcome: reason });
  session.refuse(reason);
}
