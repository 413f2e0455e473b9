import { z } from 'zod';
import { withheldVerdict } from './events.ts';
import { epochMs, opaqueId } from './scalars.ts';

/** `GET /v1/admin/cells` of a director: the cells as its own polls find them. Read leniently. */
export const cellViews = z.object({
  v: z.literal(1),
  /** By the director's clock. */
  at: epochMs,
  cells: z.array(
    z.object({
      cellId: opaqueId,
      /** What is known of its feed: pending, live, no-feed or unverifiable. */
      feed: z.string(),
      /** Since its feed was last read; null if it never was. */
      polledAgeMs: z.number().nullable(),
      /** not-dead, dead or withheld. */
      verdict: z.string(),
    }),
  ),
  withheld: z.array(withheldVerdict),
});
export type CellViews = z.output<typeof cellViews>;
