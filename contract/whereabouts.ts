import { z } from 'zod';
import { epoch, epochMs, generation, opaqueId, relayHostId, safeInteger } from './scalars.ts';

/**
 * Where a host is (`GET /v1/admin/hosts/<relayHostId>`): everything that a director knows of it, and who says so. Read
 * leniently. Ages are milliseconds before `at`. With 503 the same, beside `error` and `retryAfterMs`: the owner is unknown.
 */

const cellId = opaqueId;
const ageMs = z.number();

const owner = z.object({
  cellId,
  epoch,
  /** Null: a cell that the director has yet to hear of. */
  cellUrl: z.string().nullable(),
  /** `pending`, `fresh`, `retained` or `row`. */
  saidBy: z.string(),
  ageMs,
  live: z.boolean(),
});

const row = z.object({
  cellId,
  epoch,
  region: z.string().nullable(),
  admitMode: z.string().nullable(),
  lastActivityAt: epochMs,
  /** On any cell; those that have expired too, until they are swept. */
  leases: z.array(z.object({ cellId, epoch, state: z.string(), units: safeInteger, expiresAt: epochMs })),
  /** The open one. */
  migration: z
    .object({ epoch, from: cellId, to: cellId, pinned: z.boolean(), registered: z.boolean(), openedAt: epochMs })
    .nullable(),
});

const account = z.object({
  /** As logs and events name the host. */
  host: z.string(),
  owner: owner.nullable(),
  /** Why there is no owner. */
  unknown: z.string().optional(),
  row: row.nullable(),
  /** On every cell whose feed shows the host; the newest first. */
  seats: z.array(
    z.object({
      cellId,
      epoch,
      generation,
      state: z.string(),
      joinedAt: epochMs,
      /** Since the cell's feed was last read. */
      ageMs: ageMs.nullable(),
    }),
  ),
  left: z.array(z.object({ cellId, epoch, closeCode: z.int().optional(), ageMs })),
  /** A move that no feed shows yet. */
  pending: z.object({ cellId, epoch, source: z.string(), ageMs }).nullable(),
  /** The least epoch that this director would exceed. */
  floor: z.number(),
  bookedEpoch: z.number(),
});

export const whereabouts = z.object({
  v: z.literal(1),
  relayHostId,
  at: epochMs,
  /** Whether Postgres was asked; else the rows are missing from this. */
  store: z.union([z.object({ ok: z.literal(true) }), z.object({ ok: z.literal(false), reason: z.string() })]),
  /** Whether every cell that matters has told this director its seats. */
  mapComplete: z.boolean(),
  /** One host id is one account's, if nothing is wrong. */
  accounts: z.array(account),
});

export type Whereabouts = z.output<typeof whereabouts>;
export type AccountWhereabouts = z.output<typeof account>;
