import { z } from 'zod';
import { frameCodec } from './frames.ts';
import { epoch, epochMs, generation, origin, safeInteger, token32 } from './scalars.ts';

/** First frames: a phone's on `/v1/connect/<relayHostId>`, a host's on `/v1/host/data/<connId>`, and their answers. */

export const phoneFrames = frameCodec({
  'relay-auth': z.strictObject({ v: z.literal(1), mode: z.literal('connect'), credential: token32 }),
});
export type PhoneFrame = Extract<ReturnType<typeof phoneFrames.read>, { ok: true }>['frame'];

export const hostDataFrames = frameCodec({
  'host-data-auth': z.strictObject({ v: z.literal(1), connTicket: token32, generation }),
});
export type HostDataFrame = Extract<ReturnType<typeof hostDataFrames.read>, { ok: true }>['frame'];

const helloRefused = z.strictObject({
  ok: z.literal(false),
  code: z.union([z.literal(4401), z.literal(4404), z.literal(4408), z.literal(4409), z.literal(4429), z.literal(4503)]),
});
const helloInvite = z.strictObject({
  ok: z.literal(true),
  credentialKind: z.literal('invite'),
  leaseExpiresAt: epochMs,
});
const helloResume = z.strictObject({
  ok: z.literal(true),
  credentialKind: z.literal('resume'),
  leaseExpiresAt: epochMs,
  acceptedCredentialVersion: safeInteger.min(1),
  acceptedAs: z.enum(['current', 'grace']),
  resumeExpiresAt: epochMs,
  graceExpiresAt: epochMs.optional(),
});

/** What a phone reads before the splice. `relay-moved` comes from a director only, and only for an invite. */
export const relayFrames = frameCodec({
  'relay-hello': z.union([helloRefused, helloInvite, helloResume]),
  'relay-moved': z.strictObject({ v: z.literal(1), cellUrl: origin, assignmentEpoch: epoch }),
});
export type RelayFrame = Extract<ReturnType<typeof relayFrames.read>, { ok: true }>['frame'];
export type RelayHello = Extract<RelayFrame, { type: 'relay-hello' }>;
