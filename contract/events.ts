import { z } from 'zod';
import { epoch, epochMs, opaqueId, safeInteger } from './scalars.ts';

/**
 * What a director tells as it happens (`GET /v1/admin/events`, server-sent events), by the name of the event. Hosts appear as
 * logs name them, by digest. Read leniently: a reader skips names and members that it does not know.
 */

const cellId = opaqueId;
const host = z.string();
/** When the director learnt of it, by its own clock: what feeds say is up to a poll older. */
const at = epochMs;

/** A row of the change log. The id of the event resumes the stream behind it. */
const change = z.object({
  /** Of the row: one change has the same at every director. */
  id: safeInteger,
  kind: z.string(),
  words: z.string(),
  host: host.nullable(),
  from: cellId.nullable(),
  to: cellId.nullable(),
  epoch: epoch.nullable(),
  rule: z.string().nullable(),
  at: epochMs,
});

/** A reserve cell that would be judged dead but for a guard: its hosts wait. Cells that carry hosts and have a feed are counted. */
export const withheldVerdict = z.object({
  cellId,
  reason: z.string(),
  feedCells: z.int(),
  failing: z.int(),
  regionFeedCells: z.int(),
  regionFailing: z.int(),
  /** For so long by now. */
  forMs: z.number(),
});
export type WithheldVerdict = z.output<typeof withheldVerdict>;

/** First of all: where the reader stands, and which cells' feeds this director reads. */
const hello = z.object({
  /** What the reader missed follows; false: it starts here. */
  resumed: z.boolean(),
  cells: z.array(z.object({ cellId, open: z.boolean(), reason: z.string().optional() })),
  withheld: z.array(withheldVerdict).default([]),
});

/** Changes before this may never be told. */
const gap = z.object({ reason: z.string() });

export const EVENTS = {
  hello,
  change,
  gap,
  /** A cell's feed is read, and what happens on it is told from here on. */
  cell_open: z.object({ cellId, at }),
  /** What happened on the cell since its feed was last read is not told one by one. */
  cell_gap: z.object({ cellId, at }),
  /** Its feed is read no longer, and its seats are not counted on; told once. */
  cell_unavailable: z.object({
    cellId,
    reason: z.string(),
    lastGoodAt: epochMs.nullable(),
    retainedForMs: z.number(),
    at,
  }),
  /** Begins, or has another reason. */
  verdict_withheld: withheldVerdict.extend({ at }),
  /** It is judged again. `not-dead` too where it is polled no longer, or left reserve mode. */
  verdict_given: withheldVerdict.extend({ verdict: z.enum(['dead', 'not-dead']), at }),
  host_joined: z.object({ cellId, host, epoch, at }),
  host_left: z.object({ cellId, host, epoch, closeCode: z.int().optional(), at }),
} as const;

export type EventName = keyof typeof EVENTS;
export type EventData<N extends EventName> = z.output<(typeof EVENTS)[N]>;

/** Why a director cannot tell what was before: see {@link EVENTS.gap}. */
export const GAP_REASONS = ['unknown_id', 'gaps', 'timeline', 'pruned', 'ahead', 'start'] as const;
export type GapReason = (typeof GAP_REASONS)[number];
