import { LIMITS } from '../../contract/index.ts';
import type { ControlState } from './control-states.ts';

/** What a control's 15 s tick looks at. Times are milliseconds of the monotonic clock, but for the token's expiry. */
export interface TickView {
  state: ControlState;
  now: number;
  wallNow: number;
  /** Since the last pong, in time that counts for peers. */
  silentMs: number;
  /** Epoch milliseconds. */
  tokenExpiresAt: number;
  leaseUntil: number;
}

export type TickAction = 'nothing' | 'silence' | 'auth-expired' | 'lease-expired' | 'token-expired' | 'ping';

/** `wire` 2.3.7, first match wins; only a control with a socket is looked at (an orphan has its own grace). */
export function decideTick(view: TickView): TickAction {
  if (view.state !== 'active' && view.state !== 'drain-only') return 'nothing';
  if (view.silentMs > LIMITS.controlSilenceTimeoutMs) return 'silence';
  const expiredFor = view.wallNow - view.tokenExpiresAt;
  if (expiredFor > LIMITS.authExpiryGraceMs) return 'auth-expired';
  if (view.now >= view.leaseUntil) return 'lease-expired';
  if (expiredFor >= 0 && view.state === 'active') return 'token-expired';
  return 'ping';
}

/** How long a control may live until it must be rebound: 6 h ± 30 min, so that a boot's wave does not come back as one. */
export function rollControlLease(random: number): number {
  return LIMITS.controlLeaseMs + (2 * random - 1) * LIMITS.controlLeaseJitterMs;
}
