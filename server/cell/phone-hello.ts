import { CLOSE_REASONS, type CloseReason, relayFrames } from '../../contract/index.ts';
import type { Accepted } from './connection.ts';
import type { PeerSocket } from './peer-socket.ts';

/** A phone that is refused reads why twice: in the hello, by code alone, and in the close. */
export function refusePhone(phone: PeerSocket, reason: CloseReason): void {
  if (!phone.open) return;
  phone.send(relayFrames.write('relay-hello', { ok: false, code: CLOSE_REASONS[reason] }));
  phone.close(reason);
}

/** Exactly these members: phones read them strictly. */
export function phoneHello(accepted: Accepted): string {
  const { leaseExpiresAt } = accepted;
  if (accepted.kind === 'invite') {
    return relayFrames.write('relay-hello', { ok: true, credentialKind: 'invite', leaseExpiresAt });
  }
  return relayFrames.write('relay-hello', {
    ok: true,
    credentialKind: 'resume',
    leaseExpiresAt,
    acceptedCredentialVersion: accepted.credentialVersion,
    acceptedAs: accepted.acceptedAs,
    resumeExpiresAt: accepted.resumeExpiresAt,
    ...(accepted.graceExpiresAt === null ? {} : { graceExpiresAt: accepted.graceExpiresAt }),
  });
}
