import { z } from 'zod';

/**
 * What operators ask of a running cell (`relay.cell.flags`). Each key has its own schema and default. A key that nobody
 * knows is for a newer cell; a known key with a bad value voids the whole set, since half of what was meant is worse.
 */
const FLAGS = {
  /** `/ready` of a cell says whether it listens and has token keys, and nothing of Postgres. */
  readinessLocal: z.boolean().default(false),
  ticketCheck: z.enum(['off', 'shadow', 'enforce']).default('off'),
  rejectionFence: z.boolean().default(true),
  readTimeoutMarginMs: z.int().min(1_000).max(60_000).optional(),
  admitMode: z.enum(['db', 'reserve']).default('db'),
  /** Hosts new to the cell that it lets book a seat, a second. */
  intakePerSec: z.number().gt(0).max(1_000).optional(),
  reserveDryRun: z.boolean().default(false),
  /** Calls under way at once while hosts are given their leases back. */
  reregisterInFlight: z.int().min(1).max(16).optional(),
  /** How many cells of the fleet may run on the database though they are to run in reserve: absent any number, 0 none. */
  deadManTripSlots: z.int().min(0).max(64).optional(),
} as const;

const cellFlags = z.strictObject(FLAGS);

export type CellFlags = z.output<typeof cellFlags>;

/** Of a cell that nobody has said anything to. */
export const DEFAULT_CELL_FLAGS: CellFlags = cellFlags.parse({});

export type CellFlagsRead =
  | { ok: true; flags: CellFlags; ignored: string[] }
  /** The known keys whose values are bad. */
  | { ok: false; bad: string[] };

export function readCellFlags(given: Record<string, unknown>): CellFlagsRead {
  const entries = Object.entries(given);
  const known = entries.filter(([key]) => Object.hasOwn(FLAGS, key));
  const read = cellFlags.safeParse(Object.fromEntries(known));
  if (!read.success) return { ok: false, bad: [...new Set(read.error.issues.map(({ path }) => String(path[0])))] };
  return {
    ok: true,
    flags: read.data,
    ignored: entries.map(([key]) => key).filter((key) => !Object.hasOwn(FLAGS, key)),
  };
}
