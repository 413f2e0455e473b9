import { randomUUID } from 'node:crypto';
import { type CloseReason, hashToken, isHostCloseReason, LIMITS, phoneFrames } from '../../contract/index.ts';
import type { PreAuthSlot } from '../pre-auth.ts';
import type { OpenConnectionResult } from '../sql-interface.ts';
import { type CellCore, callerOf } from './cell-core.ts';
import { type Accepted, Connection, type ConnectionEffects } from './connection.ts';
import type { ControlSession } from './control-session.ts';
import { awaitFirstFrame } from './first-frame.ts';
import { guard } from './guard.ts';
import type { PeerSocket } from './peer-socket.ts';
import { refusePhone } from './phone-hello.ts';
import type { PhoneUnits } from './units.ts';

/** A phone at the door, from its upgrade to the `conn-open` its host gets. */
export interface Caller {
  socket: PeerSocket;
  relayHostId: string;
  units: PhoneUnits;
  slot: PreAuthSlot;
}

interface Entrance {
  core: CellCore;
  connectionEffects: ConnectionEffects;
}

interface Knock extends Caller {
  startedAt: number;
}

/** The first frame of a phone (`wire` 1.5), within 2 s; then it is let in, or hears why not. */
export function receivePhone(entrance: Entrance, caller: Caller): void {
  const { core } = entrance;
  const { socket, slot } = caller;
  const knock: Knock = { ...caller, startedAt: core.clock.now() };
  awaitFirstFrame(core.peerTime, socket, {
    late: 'first frame timeout',
    binary: 'first frame must be text',
    gone: () => abandoned(core, knock.startedAt, 'first-frame'),
    text: (text) => {
      slot.release();
      const read = phoneFrames.read(text);
      if (read.ok) guard(core.log, socket, accept(entrance, knock, read.frame.credential));
      else refuse(core, knock, 'invalid relay auth', 'unknown');
    },
  });
}

/**
 * `wire` 2.4 with one call of the database. The phone may hang up at any point: what was taken for it by then is given back
 * and its host hears nothing.
 */
async function accept({ core, connectionEffects }: Entrance, caller: Knock, credential: string): Promise<void> {
  const early = refusedEarly(core, caller.relayHostId);
  if (early !== null) {
    refuse(core, caller, early, 'unknown');
    return;
  }
  const connId = randomUUID();
  const tokenHash = hashToken(credential);
  // An invite's reservation is counted from before it was made, so that no answer comes too late for the database.
  const reservedUntil = core.clock.now() + LIMITS.inviteReservationMs;
  const opened = await open(core, caller, connId, tokenHash);
  if (opened === null) return;
  const giveBack = () => {
    if (opened.credential_kind === 'invite') releaseInvite(core, caller.relayHostId, tokenHash, connId);
  };
  if (!caller.socket.open) {
    giveBack();
    abandoned(core, caller.startedAt, 'credential');
    return;
  }
  if (opened.outcome !== 'opened') {
    if (opened.outcome === 'stale_cell_incarnation') core.standDown();
    refuse(core, caller, refusalFor(core, caller.relayHostId, opened), opened.credential_kind ?? 'unknown');
    return;
  }
  const session = core.seats.of({ userId: opened.user_id ?? '', relayHostId: caller.relayHostId });
  const late = refusedLate(core, session, opened);
  if (late !== null || session === undefined) {
    giveBack();
    refuse(core, caller, late ?? 'control changed during accept', opened.credential_kind ?? 'unknown');
    return;
  }
  core.metrics.acceptStageSeconds.observe({ stage: 'credential' }, (core.clock.now() - caller.startedAt) / 1_000);
  const accepted = acceptedCredential(opened, tokenHash, reservedUntil, session.leaseExpiresAt);
  const opening = { connId, accepted, session, phone: caller.socket, openedAt: caller.startedAt };
  admit(core, new Connection(core, connectionEffects, opening), caller.units);
}

/** Null: the database did not answer, and the phone was told to come again. */
async function open(
  core: CellCore,
  caller: Knock,
  connId: string,
  tokenHash: string,
): Promise<OpenConnectionResult | null> {
  const { relayHostId } = caller;
  const seated = core.seats.withRelayHostId(relayHostId).filter(({ takesPhones }) => takesPhones);
  try {
    return await core.db.call('open_connection', {
      ...callerOf(core),
      relay_host_id: relayHostId,
      credential_hash: tokenHash,
      conn_id: connId,
      seats: seated.map(({ host, epoch }) => ({ user_id: host.userId, epoch })),
    });
  } catch (error) {
    core.log.warn({ event: 'orca_relay_client_accept_failed', error });
    // The reservation may stand, with its answer lost.
    releaseInvite(core, relayHostId, tokenHash, connId);
    if (caller.socket.open) refuse(core, caller, 'relay temporarily unavailable', 'unknown');
    else abandoned(core, caller.startedAt, 'credential');
    return null;
  }
}

/** Known without the database: the host is leaving, or has as many phones as it may. */
function refusedEarly(core: CellCore, relayHostId: string): CloseReason | null {
  if (core.closing()) return 'relay draining';
  const seated = core.seats.withRelayHostId(relayHostId);
  if (seated.some(({ drained }) => drained) && !seated.some(({ takesPhones }) => takesPhones)) return 'relay draining';
  const taking = seated.filter(({ takesPhones }) => takesPhones);
  return taking.length > 0 && taking.every(({ full }) => full) ? 'too many connections' : null;
}

/** While the database was asked, the host may have gone, moved, or filled up. */
function refusedLate(
  core: CellCore,
  session: ControlSession | undefined,
  opened: OpenConnectionResult,
): CloseReason | null {
  if (core.closing() || session?.drained) return 'relay draining';
  if (session === undefined || !session.takesPhones || session.epoch !== opened.epoch)
    return 'control changed during accept';
  return session.full ? 'too many connections' : null;
}

function refusalFor(core: CellCore, relayHostId: string, opened: OpenConnectionResult): CloseReason {
  switch (opened.outcome) {
    case 'credential_refused':
      return 'credential refused';
    case 'host_offline':
      return offlineReason(core, relayHostId, opened);
    case 'not_here':
      return 'host seated elsewhere';
    case 'stale_cell_incarnation':
      return 'relay draining';
    default:
      return 'credential unknown here';
  }
}

/** The host's last word as this cell heard it, else as the row has it. */
function offlineReason(core: CellCore, relayHostId: string, opened: OpenConnectionResult): CloseReason {
  const heard = opened.user_id === null ? undefined : core.seats.closeReason({ userId: opened.user_id, relayHostId });
  const said = heard ?? opened.host_close_reason ?? '';
  return isHostCloseReason(said) ? said : 'relay connection rejected';
}

function acceptedCredential(
  opened: OpenConnectionResult,
  tokenHash: string,
  reservedUntil: number,
  controlLeaseExpiresAt: number,
): Accepted {
  const shared = {
    relayDeviceId: opened.relay_device_id ?? '',
    leaseExpiresAt: opened.lease_expires_at ?? controlLeaseExpiresAt,
  };
  if (opened.credential_kind === 'invite') return { kind: 'invite', ...shared, tokenHash, reservedUntil };
  return {
    kind: 'resume',
    ...shared,
    credentialVersion: opened.credential_version ?? 1,
    acceptedAs: opened.accepted_as ?? 'current',
    resumeExpiresAt: opened.resume_expires_at ?? 0,
    graceExpiresAt: opened.grace_expires_at,
  };
}

/** The last step, in one turn of the loop: the connection exists, its end is watched for, its host is told. */
function admit(core: CellCore, connection: Connection, units: PhoneUnits): void {
  const { session, phone } = connection;
  session.hold(connection);
  core.seats.addConnection(connection);
  units.bind(connection.connId);
  phone.handle({
    // Nothing is due from a phone before its hello, and nobody would take it.
    message: () => connection.end('invalid relay auth'),
    closed: () => {
      abandoned(core, connection.openedAt, 'attach');
      connection.end('peer connection dropped');
    },
  });
  session.send('conn-open', {
    connId: connection.connId,
    connTicket: connection.ticket,
    kind: connection.kind,
    relayDeviceId: connection.accepted.relayDeviceId,
    attachDeadlineMs: LIMITS.hostAttachDeadlineMs,
  });
  // Writing may have cost the host its control, and with it the connection.
  if (connection.state !== 'teardown') connection.awaitHost();
}

/** Best effort: a reservation ends by itself. */
export function releaseInvite(core: CellCore, relayHostId: string, tokenHash: string, connId: string): void {
  core.background.run(async () => {
    try {
      const outcome = await core.db.call('release_invite', {
        ...callerOf(core),
        relay_host_id: relayHostId,
        token_hash: tokenHash,
        conn_id: connId,
      });
      core.metrics.inviteReleases.inc({ outcome });
    } catch (error) {
      core.metrics.inviteReleases.inc({ outcome: 'failed' });
      core.log.debug({ event: 'orca_relay_invite_release_failed', error });
    }
  });
}

function refuse(core: CellCore, caller: Knock, reason: CloseReason, kind: string): void {
  core.metrics.accepts.inc({ kind, outcome: reason });
  refusePhone(caller.socket, reason);
}

function abandoned(core: CellCore, startedAt: number, stage: 'first-frame' | 'credential' | 'attach'): void {
  core.metrics.acceptsAbandoned.inc({ stage });
  if (stage === 'first-frame') return;
  core.log.info({
    event: 'orca_relay_client_accept_abandoned',
    stage,
    elapsedMs: Math.round(core.clock.now() - startedAt),
  });
}
