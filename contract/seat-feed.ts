import { z } from 'zod';
import { epoch, epochMs, generation, opaqueId, relayHostId, safeInteger } from './scalars.ts';

/**
 * The seats of a cell as its feed tells them (`GET /v1/admin/cell-seats`): everything at once, or what changed since a
 * cursor. Read leniently: members and kinds of change that a reader does not know are skipped.
 */

const userId = z.string().min(1).max(256);
const seatState = z.enum(['active', 'drain-only']);

export const CHANGE_KINDS = ['join', 'leave', 'drain-only', 'active', 'reserve'] as const;

const seatChange = z.object({
  /** From 1 in every process of the cell, and one more for each change. */
  seq: safeInteger.min(1),
  /** `reserve`: a booking; it seats nobody, and its generation is 0. */
  kind: z.string(),
  userId,
  relayHostId,
  epoch,
  generation,
  /** With `join`. */
  state: seatState.optional(),
  /** With `leave`. */
  closeCode: z.int().optional(),
  /** Director that booked it; with `reserve` and with the `join` that used the booking. */
  reservedBy: z.string().optional(),
  at: epochMs,
});

const feedSeat = z.object({ userId, relayHostId, epoch, generation, state: seatState, joinedAt: epochMs });
const feedLeaver = z.object({ userId, relayHostId, epoch, closeCode: z.int().optional(), at: epochMs });
const admitMode = z.enum(['db', 'reserve']);

const head = {
  v: z.literal(1),
  cellId: opaqueId,
  incarnation: z.string().regex(/^[A-Za-z0-9-]{1,64}$/),
  at: epochMs,
  draining: z.boolean(),
  counts: z.object({
    /** Sockets of controls, for a cross-check: falls when a close begins. */
    controls: safeInteger,
    /** Exactly what a reader that applied everything holds. */
    seats: safeInteger,
    bookings: safeInteger.optional(),
    units: safeInteger.optional(),
    ceiling: safeInteger.optional(),
  }),
  intake: z.object({ perSec: z.number(), burst: z.number(), tokens: z.number() }).optional(),
  flagsApplied: z.object({ generation: safeInteger, flags: z.record(z.string(), z.unknown()) }).optional(),
  /** What the flags and the dead-man trip say. */
  admitModeRaw: admitMode.optional(),
  /** `reserve` until every host that was admitted from memory holds a lease. */
  admitModeEffective: admitMode.optional(),
  /** Of the last change: what this page brings the reader to. */
  seq: safeInteger,
};

export const feedPage = z.union([
  z.object({ ...head, full: z.array(feedSeat), recentlyLeft: z.array(feedLeaver) }),
  z.object({ ...head, changes: z.array(seatChange), more: z.boolean() }),
]);

export type SeatState = z.output<typeof seatState>;
export type SeatChangeKind = (typeof CHANGE_KINDS)[number];
export type FeedSeat = z.output<typeof feedSeat>;
export type FeedLeaver = z.output<typeof feedLeaver>;
export type FeedChange = z.output<typeof seatChange>;
export type FeedPage = z.output<typeof feedPage>;

/** Where a reader stands in the feed of one process of a cell. */
export interface FeedCursor {
  incarnation: string;
  seq: number;
}

const CURSOR = /^([A-Za-z0-9-]{1,64}):(\d{1,15})$/;

export function writeFeedCursor({ incarnation, seq }: FeedCursor): string {
  return `${incarnation}:${seq}`;
}

/** Null for text that is no cursor. */
export function readFeedCursor(text: string): FeedCursor | null {
  const [, incarnation, seq] = CURSOR.exec(text) ?? [];
  return incarnation === undefined || seq === undefined ? null : { incarnation, seq: Number(seq) };
}
