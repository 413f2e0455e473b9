import { z } from 'zod';
import { LIMITS } from '../contract/limits.ts';
import { epoch, epochMs, origin, relayHostId, token32 } from '../contract/scalars.ts';

/** The relay's part of a pairing offer: what a phone needs to reach the host for the first time. It holds a secret. */
export const relayInvite = z.strictObject({
  v: z.literal(1),
  directorUrl: origin,
  cellUrl: origin,
  assignmentEpoch: epoch,
  relayHostId,
  inviteToken: token32,
  inviteExpiresAt: epochMs,
  e2eeFraming: z.literal(2),
});
export type RelayInvite = z.infer<typeof relayInvite>;

/** How much further ahead than its life an invite may end: clocks differ. */
const CLOCK_TOLERANCE_MS = 30_000;

/** Checks what was scanned; null when it is no invite, has ended, or ends later than any invite could. */
export function readInvite(value: unknown, now: number): RelayInvite | null {
  const parsed = relayInvite.safeParse(value);
  if (!parsed.success) return null;
  const left = parsed.data.inviteExpiresAt - now;
  return left > 0 && left <= LIMITS.inviteTtlMs + CLOCK_TOLERANCE_MS ? parsed.data : null;
}
