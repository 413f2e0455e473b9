import type { Database } from '../database.ts';

/**
 * Most connections that all directors may hold together. A nearly full cell still takes grants under a latch that several
 * directors share, so it keeps that many units free (02, capacity).
 */
export const MAX_DIRECTOR_CONNECTIONS = 64;

/**
 * Counts connections, since nobody knows the configured sizes of the others; their listeners bear other names.
 *
 * @throws when this director's pool would not fit beside the others
 */
export async function checkPoolBudget(db: Database): Promise<void> {
  const [row] = await db.query<{ others: number }>(
    `select count(*)::int as others
       from pg_stat_activity
      where datname = current_database()
        and application_name similar to 'orca-relay/(director|combined)/%'
        and pid <> pg_backend_pid()`,
  );
  const others = row?.others ?? 0;
  if (others + db.poolMax <= MAX_DIRECTOR_CONNECTIONS) return;
  throw new Error(
    `directors hold ${others} connections already: with ORCA_RELAY_DATABASE_POOL_MAX ${db.poolMax} they would exceed ${MAX_DIRECTOR_CONNECTIONS}`,
  );
}
