import { z } from 'zod';
import { LIMITS } from './limits.ts';
import { epoch, epochMs, relayHostId } from './scalars.ts';

/**
 * What a director asks of a reserve cell: to keep seats for hosts (`POST /internal/reserve`), and to let go of a seat that a
 * newer one outranks (`POST /internal/demote`). Requests are read strictly; replies leniently, since the cell may be newer.
 */

const userId = z.string().min(1).max(256);
export const directorId = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/);

const bookingItem = z.strictObject({
  userId,
  relayHostId,
  epoch: epoch.min(1),
  ttlMs: z.int().min(1).max(LIMITS.bookingTtlMs),
  /** The host sat here before the cell restarted: costs a unit and no intake token. */
  sticky: z.boolean().optional(),
});

export const reserveRequest = z.strictObject({
  v: z.literal(1),
  directorId,
  /** Answers as if it were real, and changes nothing. */
  dryRun: z.boolean().optional(),
  items: z.array(bookingItem).min(1).max(LIMITS.bookingItems),
});

/**
 * `ok` kept; `full` no unit; `intake` too many new hosts just now; `draining`; `off` not in reserve mode; `seated-newer` the
 * cell knows this host at `epoch`.
 */
export const BOOKING_OUTCOMES = ['ok', 'full', 'intake', 'draining', 'off', 'seated-newer'] as const;

/** An outcome that this reader does not know is a no. */
const bookingResult = z.object({ outcome: z.string(), epoch: epoch.optional() });
export const reserveReply = z.object({ v: z.literal(1), results: z.array(bookingResult).max(LIMITS.bookingItems) });

/** Names one seat exactly: another seat of the same host is not touched. */
export const demoteRequest = z.strictObject({
  v: z.literal(1),
  userId,
  relayHostId,
  epoch: epoch.min(1),
  joinedAt: epochMs,
});

export const DEMOTE_OUTCOMES = ['demoted', 'already-demoted', 'not-seated', 'off'] as const;
export const demoteReply = z.object({ v: z.literal(1), outcome: z.string() });

export type BookingItem = z.output<typeof bookingItem>;
export type ReserveRequest = z.output<typeof reserveRequest>;
export type BookingOutcome = (typeof BOOKING_OUTCOMES)[number];
/** `epoch` with `seated-newer`. */
export interface BookingResult {
  outcome: BookingOutcome;
  epoch?: number;
}
export type DemoteRequest = z.output<typeof demoteRequest>;
export type DemoteOutcome = (typeof DEMOTE_OUTCOMES)[number];
