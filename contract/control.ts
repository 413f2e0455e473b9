import { z } from 'zod';
import { type Frame, frameCodec } from './frames.ts';
import { LIMITS } from './limits.ts';
import {
  appVersion,
  ciphertext,
  epoch,
  epochMs,
  generation,
  key32,
  nonce24,
  opaqueId,
  relayHostId,
  relayJwt,
  safeInteger,
  token32,
} from './scalars.ts';

/** The host control channel, `/v1/host/control`: JSON text in both directions. */

export const connectionKind = z.enum(['invite', 'resume']);
export type ConnectionKind = z.infer<typeof connectionKind>;

/** `kind` and `relayDeviceId` are sent only to a host that advertised `pending-conn-details`: older ones parse strictly. */
export const pendingConn = z.strictObject({
  connId: opaqueId,
  connTicket: token32,
  kind: connectionKind.optional(),
  relayDeviceId: opaqueId.optional(),
});
export type PendingConn = z.infer<typeof pendingConn>;

export const installAuthorization = z.discriminatedUnion('mode', [
  z.strictObject({ mode: z.literal('relay-basis'), basisConnId: opaqueId }),
  z.strictObject({ mode: z.literal('authenticated-direct'), directAuthId: opaqueId }),
]);

export const installedCredential = z.strictObject({
  v: z.literal(1),
  reqId: opaqueId,
  authorizationMode: z.enum(['relay-basis', 'authenticated-direct']),
  currentVersion: safeInteger.min(1),
  resumeExpiresAt: epochMs,
  graceExpiresAt: epochMs.optional(),
});

const installStatusResult = z.discriminatedUnion('state', [
  z.strictObject({ v: z.literal(1), reqId: opaqueId, state: z.literal('not-found') }),
  z.strictObject({ v: z.literal(1), reqId: opaqueId, state: z.literal('committed'), result: installedCredential }),
]);

export const hostFrames = frameCodec({
  'host-hello': z.strictObject({
    v: z.literal(1),
    relayHostId,
    assignmentEpoch: epoch,
    hostPublicKeyB64: key32,
    appVersion,
    previousGeneration: generation.optional(),
    controlResumeSecret: token32.optional(),
  }),
  'host-challenge-ack': z.strictObject({ challengeId: opaqueId, proofB64: key32 }),
  pong: z.strictObject({ t: epochMs }),
  'auth-refresh': z.strictObject({ relayJwt }),
  'invite-create': z.strictObject({ reqId: opaqueId, relayDeviceId: opaqueId }),
  'device-credential-install': z.strictObject({
    v: z.literal(1),
    reqId: opaqueId,
    relayDeviceId: opaqueId,
    newResumeTokenHash: token32,
    expectedCurrentHash: token32.optional(),
    authorization: installAuthorization,
  }),
  'device-credential-install-status': z.strictObject({ v: z.literal(1), reqId: opaqueId, relayDeviceId: opaqueId }),
  'device-resume-confirm': z.strictObject({ v: z.literal(1), reqId: opaqueId, basisConnId: opaqueId }),
  'device-revoke': z.strictObject({ reqId: opaqueId, relayDeviceId: opaqueId }),
});
export type HostFrame = Extract<ReturnType<typeof hostFrames.read>, { ok: true }>['frame'];
export type HostFrameOf<T extends HostFrame['type']> = Extract<HostFrame, { type: T }>;

export const cellFrames = frameCodec({
  'host-challenge': z.strictObject({
    challengeId: opaqueId,
    relayEphemeralPublicKeyB64: key32,
    nonceB64: nonce24,
    ciphertextB64: ciphertext,
    expiresAt: epochMs,
  }),
  'host-hello-ack': z.strictObject({
    v: z.literal(1),
    generation: generation.min(1),
    controlResumeSecret: token32,
    leaseExpiresAt: epochMs,
    activeConnIds: z.array(opaqueId).max(LIMITS.maxConnectionsPerHost),
    pendingConns: z.array(pendingConn).max(LIMITS.maxConnectionsPerHost),
  }),
  'conn-open': z.strictObject({
    connId: opaqueId,
    connTicket: token32,
    kind: connectionKind,
    relayDeviceId: opaqueId,
    attachDeadlineMs: z.int().min(1).max(LIMITS.maxHostAttachDeadlineMs),
  }),
  ping: z.strictObject({ t: epochMs }),
  drain: z.strictObject({
    graceMs: z.int().min(0).max(LIMITS.maxGraceMs),
    recovery: z.literal('resolve-director'),
  }),
  'invite-created': z.strictObject({
    reqId: opaqueId,
    inviteToken: token32,
    expiresAt: epochMs,
    maxAttempts: z.int().min(1).max(16),
  }),
  'device-credential-installed': installedCredential,
  'device-credential-install-status-result': installStatusResult,
  'device-resume-confirmed': z.strictObject({
    v: z.literal(1),
    reqId: opaqueId,
    currentVersion: safeInteger.min(1),
    acceptedAs: z.enum(['current', 'grace']),
    renewed: z.boolean(),
    resumeExpiresAt: epochMs,
    graceExpiresAt: epochMs.optional(),
  }),
  'device-revoked': z.strictObject({ reqId: opaqueId }),
  'control-error': z.strictObject({ reqId: opaqueId.optional(), code: z.string().min(1).max(128) }),
});
export type CellFrame = Extract<ReturnType<typeof cellFrames.read>, { ok: true }>['frame'];
export type CellFrameOf<T extends CellFrame['type']> = Extract<CellFrame, { type: T }>;
export type { Frame };

/** Codes of a `control-error`: the request it names failed, the channel goes on. */
export const CONTROL_ERRORS = [
  'unknown_control_message',
  'invalid_control_message',
  'authorization_expired',
  'rate_limit_exceeded',
  'invalid_relay_basis',
  'invalid_direct_authorization',
  'current_hash_mismatch',
  'confirmation_tuple_mismatch',
  'confirmation_not_active',
  'reject-retired',
  'reject-expired',
  'reject-revoked',
  'credential_not_found',
  'relay_temporarily_unavailable',
  'control_not_current',
  'too_many_requests_in_flight',
] as const;
export type ControlError = (typeof CONTROL_ERRORS)[number];

/** What a desktop says of itself in `x-orca-host-capabilities`; unknown tokens are ignored. */
export const CAPABILITIES = ['pending-conn-details'] as const;
export type Capability = (typeof CAPABILITIES)[number];

/** A relay holds one set a host: those who say the same share it. */
const capabilitySets = new Map<string, ReadonlySet<Capability>>();

/** Reads the header: a comma list, trimmed; too long or too many tokens are dropped, unknown ones too. */
export function readCapabilities(header: string): ReadonlySet<Capability> {
  const tokens = header
    .split(',')
    .map((token) => token.trim())
    .filter((token) => token.length > 0 && token.length <= LIMITS.maxCapabilityLength)
    .slice(0, LIMITS.maxCapabilities);
  const known = CAPABILITIES.filter((capability) => tokens.includes(capability));
  const name = known.join();
  const shared = capabilitySets.get(name) ?? new Set(known);
  capabilitySets.set(name, shared);
  return shared;
}
