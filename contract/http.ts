import { z } from 'zod';
import {
  epoch,
  epochMs,
  key32,
  opaqueId,
  origin,
  region,
  relayHostId,
  relayJwt,
  safeInteger,
  token32,
} from './scalars.ts';

/** Bodies of the director's HTTP endpoints. Times are epoch milliseconds. An error's body is always `{error: code}`. */

const measurement = z.number().min(0).max(120_000);

const regionReport = z.discriminatedUnion('outcome', [
  z.strictObject({
    v: z.literal(1),
    action: z.literal('report'),
    generation: safeInteger,
    assignmentEpoch: epoch,
    policyVersion: z.literal(1),
    outcome: z.literal('conclusive'),
    measurements: z.record(region, measurement),
  }),
  z.strictObject({
    v: z.literal(1),
    action: z.literal('report'),
    generation: safeInteger,
    assignmentEpoch: epoch,
    policyVersion: z.literal(1),
    outcome: z.literal('inconclusive'),
    reason: z.string().min(1).max(64),
  }),
]);
const issueWindow = z.strictObject({ v: z.literal(1), action: z.literal('issue-window') });

export const assignRequest = z.strictObject({
  v: z.literal(1),
  relayHostId,
  reconnect: z.boolean().optional(),
  preferredRegion: region.optional(),
  regionCorrection: z.union([issueWindow, regionReport]).optional(),
});
export type AssignRequest = z.infer<typeof assignRequest>;

export const assignReply = z.strictObject({
  v: z.literal(1),
  cellUrl: origin,
  assignmentEpoch: epoch,
  lease: z.string().min(1).max(8_192),
});
export type AssignReply = z.infer<typeof assignReply>;

export const resolveRequest = z.strictObject({ v: z.literal(1), relayHostId, resumeToken: token32 });
export type ResolveRequest = z.infer<typeof resolveRequest>;

export const resolveReply = z.strictObject({
  v: z.literal(1),
  cellUrl: origin,
  assignmentEpoch: epoch,
  leaseExpiresAt: epochMs,
});
export type ResolveReply = z.infer<typeof resolveReply>;

export const regionsReply = z.strictObject({
  v: z.literal(1),
  regions: z.array(z.strictObject({ region, probeOrigins: z.array(origin).min(1).max(2) })),
});
export type RegionsReply = z.infer<typeof regionsReply>;

export const hostTokenRequest = z.strictObject({ relayHostId, hostPublicKeyB64: key32 });
export type HostTokenRequest = z.infer<typeof hostTokenRequest>;

export const hostTokenReply = z.strictObject({ relayToken: relayJwt, expiresAt: epochMs });
export type HostTokenReply = z.infer<typeof hostTokenReply>;

export const errorReply = z.object({ error: z.string().min(1).max(128) });

/** Claims of a relay token, beyond issuer, audience and times, which the verifier checks. */
export const relayTokenClaims = z.object({
  sub: z.string().min(1).max(256),
  prof: z.string().min(1).max(512),
  org: z.string().max(256).optional(),
  relayHostId,
  purpose: z.literal('host-control'),
  exp: z.number(),
});
export type RelayTokenClaims = z.infer<typeof relayTokenClaims>;

/** Claims of the assignment lease a director signs. Admission never hangs on it: the row decides. */
export const assignmentLeaseClaims = z.object({
  sub: z.string().min(1),
  purpose: z.literal('cell-assignment'),
  cellId: opaqueId,
  cellUrl: origin,
  assignmentEpoch: epoch,
  relayHostId,
});
export type AssignmentLeaseClaims = z.infer<typeof assignmentLeaseClaims>;

/** Error codes a host or phone may read from the director. */
export const HTTP_ERRORS = [
  'invalid_token',
  'request_too_large',
  'invalid_request',
  'host_identity_mismatch',
  'assignment_not_found',
  'assignments_temporarily_unavailable',
  'assignment_row_busy',
  'relay_capacity_exhausted',
  'relay_connection_headroom_exhausted',
  'relay_home_cell_unavailable',
  'invalid_credential',
  'owner_unknown',
  'director_only',
  'dependency_unavailable',
  'not_found',
  'internal_error',
] as const;
export type HttpError = (typeof HTTP_ERRORS)[number];
