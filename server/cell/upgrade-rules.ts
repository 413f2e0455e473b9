import type { Reply } from '../http.ts';

/** Why an upgrade is refused: a metric label. */
export const UPGRADE_REFUSALS = {
  'query-string': { status: 400, error: 'invalid_request' },
  'invalid-token': { status: 401, error: 'invalid_token' },
  'bad-host-id': { status: 429, error: 'invalid_request' },
  'bad-connection-id': { status: 429, error: 'invalid_request' },
  'pre-auth-budget': { status: 429, error: 'too_many_connections' },
  'too-many-sockets': { status: 429, error: 'too_many_connections' },
  'no-units': { status: 503, error: 'relay_capacity_exhausted' },
  'not-heard': { status: 503, error: 'relay_temporarily_unavailable', retryAfterSeconds: 2 },
  'database-busy': { status: 503, error: 'relay_temporarily_unavailable', retryAfterSeconds: 2 },
  'keys-unavailable': { status: 503, error: 'relay_temporarily_unavailable', retryAfterSeconds: 2 },
} as const satisfies Record<string, { status: number; error: string; retryAfterSeconds?: number }>;

export type UpgradeRefusal = keyof typeof UPGRADE_REFUSALS;

export function refusalReply(refusal: UpgradeRefusal): Reply {
  const { status, error, ...rest } = UPGRADE_REFUSALS[refusal];
  const headers = 'retryAfterSeconds' in rest ? { 'retry-after': String(rest.retryAfterSeconds) } : {};
  return { status, json: { error }, headers };
}

/** A pool that has a whole pool's worth of calls waiting, the oldest for this long, takes no new hosts (`wire` 2.11). */
const SHED_AFTER_MS = 1_000;

export function isOverloaded(db: { waiters(): number; oldestWaitMs(): number; poolMax: number }): boolean {
  return db.waiters() >= db.poolMax && db.oldestWaitMs() >= SHED_AFTER_MS;
}
