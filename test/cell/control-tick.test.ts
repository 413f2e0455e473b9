import { describe, expect, it } from 'vitest';
import { LIMITS } from '../../contract/index.ts';
import { decideTick, rollControlLease, type TickView } from '../../server/cell/control-tick.ts';

const now = 1_000_000;
const wallNow = 1_700_000_000_000;
const view = (over: Partial<TickView>): TickView => ({
  state: 'active',
  now,
  wallNow,
  silentMs: 15_000,
  tokenExpiresAt: wallNow + 60_000,
  leaseUntil: now + 3_600_000,
  ...over,
});

describe('the 15 s tick of a control (wire 2.3.7)', () => {
  it.each<[string, Partial<TickView>, ReturnType<typeof decideTick>]>([
    ['pings a healthy control', {}, 'ping'],
    ['pings at exactly 75 s of silence', { silentMs: LIMITS.controlSilenceTimeoutMs }, 'ping'],
    ['gives up after more than 75 s of silence', { silentMs: LIMITS.controlSilenceTimeoutMs + 1 }, 'silence'],
    ['notices an expired token', { tokenExpiresAt: wallNow }, 'token-expired'],
    ['pings on while drain-only', { state: 'drain-only', tokenExpiresAt: wallNow - 1 }, 'ping'],
    [
      'keeps an expired control for exactly 60 s',
      { tokenExpiresAt: wallNow - LIMITS.authExpiryGraceMs },
      'token-expired',
    ],
    ['then lets it go', { tokenExpiresAt: wallNow - LIMITS.authExpiryGraceMs - 1 }, 'auth-expired'],
    ['lets a drain-only one go too', { state: 'drain-only', tokenExpiresAt: wallNow - 60_001 }, 'auth-expired'],
    ['ends with its lease', { leaseUntil: now }, 'lease-expired'],
    ['leaves an orphan to its grace', { state: 'orphaned', silentMs: now, leaseUntil: 0 }, 'nothing'],
    ['has nothing to say to an unproved control', { state: 'proving', silentMs: now }, 'nothing'],
  ])('%s', (_name, over, action) => {
    expect(decideTick(view(over))).toBe(action);
  });

  it('spreads the control lease over 6 h ± 30 min', () => {
    expect(rollControlLease(0)).toBe(5.5 * 3_600_000);
    expect(rollControlLease(0.5)).toBe(6 * 3_600_000);
    expect(rollControlLease(1)).toBe(6.5 * 3_600_000);
  });
});
