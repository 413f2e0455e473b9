import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import { ForgottenFloors } from '../../server/director/forgotten-floors.ts';
import { BookedEpochs, Floors, hostKey, hostOfKey, Leavers } from '../../server/director/host-memory.ts';
import { hostOf } from './support/feed.ts';

/** What a director remembers of hosts that are seated nowhere, and how it forgets (86 "leavers bounded", P1). */

const key = (n: number) => hostKey(hostOf(n));
const leaver = (epoch: number, at: number) =>
  ({ cellId: 'X', incarnation: 'X-1', epoch, closeCode: 1000, leftAt: at, at }) as const;

test('a key names one host, whatever its account is called', () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1, maxLength: 256 }), fc.stringMatching(/^[A-Za-z0-9_-]{16}$/), (userId, id) => {
      expect(hostOfKey(hostKey({ userId, relayHostId: id }))).toEqual({ userId, relayHostId: id });
    }),
  );
});

describe('86 leavers', () => {
  test('four a host, the newest first, for 24 h', () => {
    const leavers = new Leavers();
    for (let n = 1; n <= 6; n++) leavers.note(key(1), leaver(n, n * 1_000));
    expect(leavers.of(key(1), 6_000).map(({ epoch }) => epoch)).toEqual([6, 5, 4, 3]);
    expect(leavers.of(key(1), 5_000 + LIMITS.leaverMemoryMs).map(({ epoch }) => epoch)).toEqual([6, 5]);
    expect(leavers.of(key(1), 6_001 + LIMITS.leaverMemoryMs)).toEqual([]);
  });

  test('of so many hosts; whoever left longest ago is dropped', () => {
    const leavers = new Leavers();
    for (let n = 0; n <= LIMITS.rememberedHosts; n++) leavers.note(key(n), leaver(1, n));
    expect(leavers.size).toBe(LIMITS.rememberedHosts);
    expect([leavers.of(key(0), 0), leavers.of(key(1), 0).length]).toEqual([[], 1]);
  });

  test('the memory of those who are long gone is freed', () => {
    const leavers = new Leavers();
    for (let n = 0; n < 100; n++) leavers.note(key(n), leaver(1, n));
    leavers.note(key(200), leaver(1, 100 + LIMITS.leaverMemoryMs));
    expect(leavers.size).toBe(1);
  });
});

test('bookings of so many hosts; the newest epoch of each', () => {
  const booked = new BookedEpochs();
  for (let n = 0; n <= LIMITS.rememberedHosts; n++) booked.note(key(n), 3);
  booked.note(key(5), 2);
  expect([booked.size, booked.of(key(0)), booked.of(key(5))]).toEqual([LIMITS.rememberedHosts, 0, 3]);
});

describe('floors (P1)', () => {
  test('of twice as many hosts as are kept none is ever too low, and hardly one too high', () => {
    const floors = new Floors();
    const hosts = 2 * LIMITS.rememberedHosts;
    const epochOf = (n: number) => 1 + (n % 97);
    for (let n = 0; n < hosts; n++) floors.raise(key(n), epochOf(n));
    let tooHigh = 0;
    for (let n = 0; n < hosts; n++) {
      const floor = floors.of(key(n));
      if (floor < epochOf(n)) throw new Error(`${floor} for host ${n}, which was heard at ${epochOf(n)}`);
      if (floor > epochOf(n)) tooHigh += 1;
    }
    expect(floors.size).toBe(LIMITS.rememberedHosts);
    expect(tooHigh / hosts).toBeLessThan(0.06);
    let strangers = 0;
    for (let n = hosts; n < hosts + 20_000; n++) if (floors.of(key(n)) > 0) strangers += 1;
    expect(strangers / 20_000).toBeLessThan(0.01);
  });

  test('a host that is heard of anew at a lower epoch keeps the higher one', () => {
    const floors = new Floors();
    floors.raise(key(0), 9);
    for (let n = 1; n <= LIMITS.rememberedHosts; n++) floors.raise(key(n), 1);
    floors.raise(key(0), 5);
    expect(floors.of(key(0))).toBeGreaterThanOrEqual(9);
    floors.settle(key(0), 5);
    expect(floors.of(key(0))).toBeGreaterThanOrEqual(9);
  });

  test('however many are forgotten, in whatever order, the answer is never too low', () => {
    const forgotten = new ForgottenFloors();
    const told = new Map<number, number>();
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(5_000), fc.integer({ min: 1, max: 2 ** 40 })), { maxLength: 200 }),
        (list) => {
          for (const [n, epoch] of list) {
            forgotten.remember(key(n), epoch);
            told.set(n, Math.max(epoch, told.get(n) ?? 0));
          }
          for (const [n, epoch] of told) expect(forgotten.of(key(n))).toBeGreaterThanOrEqual(epoch);
        },
      ),
      { numRuns: 50 },
    );
  });

  test('one that shares its slot answers for both with the higher', () => {
    const forgotten = new ForgottenFloors();
    for (let n = 0; n < 4_000; n++) forgotten.remember(key(n), 1);
    expect(forgotten.shared).toBeGreaterThan(0);
    expect(forgotten.shared).toBeLessThan(40);
    expect(forgotten.of(key(5_000))).toBe(0);
  });
});
