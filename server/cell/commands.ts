import {
  type CellFrameOf,
  type ControlError,
  type HostFrame,
  type HostFrameOf,
  hashToken,
  newToken,
} from '../../contract/index.ts';
import type { ConfirmResult, InstallResult } from '../sql-interface.ts';
import { type CellCore, callerOf } from './cell-core.ts';
import type { ControlSession } from './control-session.ts';

/** A command's answer: one frame, or the code of a `control-error`. */
export type Answer =
  | CellFrameOf<'invite-created'>
  | CellFrameOf<'device-credential-installed'>
  | CellFrameOf<'device-credential-install-status-result'>
  | CellFrameOf<'device-resume-confirmed'>
  | CellFrameOf<'device-revoked'>
  | { error: ControlError };

export type Command = Extract<HostFrame, { reqId: string }>;

type Run<T extends Command['type']> = (
  core: CellCore,
  session: ControlSession,
  command: HostFrameOf<T>,
) => Promise<Answer>;

/** What a host asks of its phones' credentials (`wire` 2.10): each one call of the database, which keeps the rules. */
export const COMMANDS: { [T in Command['type']]: Run<T> } = {
  'invite-create': createInvite,
  'device-credential-install': installCredential,
  'device-credential-install-status': installStatus,
  'device-resume-confirm': confirmResume,
  'device-revoke': revokeDevice,
};

/** @throws DatabaseError */
export function runCommand(core: CellCore, session: ControlSession, command: Command): Promise<Answer> {
  return (COMMANDS[command.type] as Run<Command['type']>)(core, session, command);
}

function hostOf({ host }: ControlSession): { user_id: string; relay_host_id: string } {
  return { user_id: host.userId, relay_host_id: host.relayHostId };
}

async function createInvite(
  core: CellCore,
  session: ControlSession,
  { reqId, relayDeviceId }: HostFrameOf<'invite-create'>,
): Promise<Answer> {
  if (!session.takesPhones) return { error: 'authorization_expired' };
  const inviteToken = newToken();
  const created = await core.db.call('create_invite', {
    ...callerOf(core),
    ...hostOf(session),
    relay_device_id: relayDeviceId,
    token_hash: hashToken(inviteToken),
  });
  if (created.outcome !== 'created') return { error: refused(core, created.outcome) };
  return {
    type: 'invite-created',
    reqId,
    inviteToken,
    expiresAt: created.expires_at ?? 0,
    maxAttempts: created.max_attempts ?? 1,
  };
}

async function installCredential(
  core: CellCore,
  session: ControlSession,
  command: HostFrameOf<'device-credential-install'>,
): Promise<Answer> {
  const { authorization, relayDeviceId, reqId } = command;
  const byBasis = authorization.mode === 'relay-basis';
  if (!byBasis && !session.takesPhones) return { error: 'authorization_expired' };
  const connection = byBasis ? session.connections.get(authorization.basisConnId) : undefined;
  const result = await core.db.call('install_credential', {
    ...callerOf(core),
    ...hostOf(session),
    req_id: reqId,
    relay_device_id: relayDeviceId,
    new_token_hash: command.newResumeTokenHash,
    expected_current_hash: command.expectedCurrentHash ?? null,
    authorization_mode: authorization.mode,
    basis: connection?.inviteBasis(relayDeviceId) ?? null,
    direct_auth_id: byBasis ? null : authorization.directAuthId,
  });
  if (result.outcome === 'committed') {
    if (connection !== undefined) connection.consumed = true;
    return { type: 'device-credential-installed', ...installed(reqId, result) };
  }
  if (result.outcome === 'not_found') return { error: 'relay_temporarily_unavailable' };
  return { error: refused(core, result.outcome) };
}

async function installStatus(
  core: CellCore,
  session: ControlSession,
  { reqId, relayDeviceId }: HostFrameOf<'device-credential-install-status'>,
): Promise<Answer> {
  const result = await core.db.call('install_status', {
    ...hostOf(session),
    relay_device_id: relayDeviceId,
    req_id: reqId,
  });
  const type = 'device-credential-install-status-result';
  if (result.outcome !== 'committed') return { type, v: 1, reqId, state: 'not-found' };
  return { type, v: 1, reqId, state: 'committed', result: installed(reqId, result) };
}

async function confirmResume(
  core: CellCore,
  session: ControlSession,
  { reqId, basisConnId }: HostFrameOf<'device-resume-confirm'>,
): Promise<Answer> {
  const result = await core.db.call('confirm_resume', {
    ...callerOf(core),
    ...hostOf(session),
    req_id: reqId,
    basis_conn_id: basisConnId,
    basis: session.connections.get(basisConnId)?.resumeBasis() ?? null,
  });
  if (result.outcome !== 'confirmed') return { error: refused(core, result.outcome) };
  return confirmed(reqId, result);
}

async function revokeDevice(
  core: CellCore,
  session: ControlSession,
  { reqId, relayDeviceId }: HostFrameOf<'device-revoke'>,
): Promise<Answer> {
  const outcome = await core.db.call('revoke_device', {
    ...callerOf(core),
    ...hostOf(session),
    relay_device_id: relayDeviceId,
  });
  if (outcome !== 'revoked') return { error: refused(core, outcome) };
  return { type: 'device-revoked', reqId };
}

function installed(reqId: string, result: InstallResult): Omit<CellFrameOf<'device-credential-installed'>, 'type'> {
  return {
    v: 1,
    reqId,
    authorizationMode: result.authorization_mode ?? 'relay-basis',
    currentVersion: result.current_version ?? 1,
    resumeExpiresAt: result.resume_expires_at ?? 0,
    ...(result.grace_expires_at === null ? {} : { graceExpiresAt: result.grace_expires_at }),
  };
}

function confirmed(reqId: string, result: ConfirmResult): CellFrameOf<'device-resume-confirmed'> {
  return {
    type: 'device-resume-confirmed',
    v: 1,
    reqId,
    currentVersion: result.current_version ?? 1,
    acceptedAs: result.accepted_as ?? 'current',
    renewed: result.renewed ?? false,
    resumeExpiresAt: result.resume_expires_at ?? 0,
    ...(result.grace_expires_at === null ? {} : { graceExpiresAt: result.grace_expires_at }),
  };
}

/** A refusal of the database's is the code on the wire, but for the one that is the cell's own trouble. */
function refused<O extends ControlError | 'stale_cell_incarnation'>(core: CellCore, outcome: O): ControlError {
  if (outcome !== 'stale_cell_incarnation') return outcome as ControlError;
  core.standDown();
  return 'relay_temporarily_unavailable';
}
