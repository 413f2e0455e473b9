import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Backoff,
  backoffDelay,
  HOST_BACKOFF,
  PHONE_BACKOFF,
  readRetryAfter,
  rejectedProbeDelay,
  renewalDelay,
} from '../../client/backoff.ts';

const unit = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe('back-off', () => {
  const rules: [string, Backoff][] = [
    ['host', HOST_BACKOFF],
    ['phone', PHONE_BACKOFF],
  ];
  test.each(rules)('of a %s stays between its floor and base × 2^streak, under its cap', (_name, rule) => {
    fc.assert(
      fc.property(fc.nat(10_000), unit, (streak, random) => {
        const delay = backoffDelay(rule, streak, () => random);
        expect(delay).toBeGreaterThanOrEqual(rule.floorMs);
        expect(delay).toBeLessThanOrEqual(Math.max(rule.floorMs, Math.min(rule.capMs, rule.baseMs * 2 ** streak)));
      }),
    );
  });

  test('has full jitter: the whole span is used', () => {
    expect(backoffDelay(HOST_BACKOFF, 20, () => 0)).toBe(0);
    expect(backoffDelay(HOST_BACKOFF, 20, () => 0.999999)).toBeGreaterThan(299_000);
    expect(backoffDelay(PHONE_BACKOFF, 20, () => 0)).toBe(250);
    expect(backoffDelay(PHONE_BACKOFF, 20, () => 0.999999)).toBeGreaterThan(29_900);
  });

  test('is raised by Retry-After, up to five minutes', () => {
    expect(backoffDelay(PHONE_BACKOFF, 0, () => 0.5, 7_000)).toBe(7_000);
    expect(backoffDelay(HOST_BACKOFF, 0, () => 0.5, 86_400_000)).toBe(300_000);
  });
});

test('a renewal comes no later than 90 s before the end, and early by a tenth, ± 10 %', () => {
  fc.assert(
    fc.property(fc.integer({ min: 100_000, max: 30_000_000 }), unit, (remaining, random) => {
      const delay = renewalDelay(remaining, () => random);
      expect(delay).toBeLessThanOrEqual(Math.max(5_000, remaining - 90_000));
      expect(delay).toBeGreaterThanOrEqual(Math.min(5_000, ((remaining - 90_000) / 1.1) * 0.9));
    }),
  );
  expect(renewalDelay(-5, () => 0.5)).toBe(5_000);
});

test('a rejected credential is probed after 1 to 15 min, ± 25 %', () => {
  fc.assert(
    fc.property(fc.nat(1_000), unit, (streak, random) => {
      const delay = rejectedProbeDelay(streak, () => random);
      expect(delay).toBeGreaterThanOrEqual(45_000);
      expect(delay).toBeLessThanOrEqual(1_125_000);
    }),
  );
});

test.each([
  ['3', 3_000],
  ['0', 0],
  ['999999999', 300_000],
  ['Thu, 01 Jan 1970 00:00:09 GMT', 8_000],
  ['Thu, 01 Jan 1970 00:00:00 GMT', 0],
  ['soon', undefined],
  ['-1', undefined],
  ['', undefined],
  [null, undefined],
])('Retry-After %j is %j ms', (header, expected) => {
  expect(readRetryAfter(header, 1_000)).toBe(expected);
});
