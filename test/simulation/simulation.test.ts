import { describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { type Fault, simulate } from './simulation.ts';

const SEEDS = Array.from({ length: 10 }, (_, n) => n + 1);
/** Of a machine with other work; each takes a few seconds. */
const TIMEOUT_MS = 180_000;

describe('92: five directors and thirty cells, with restarts, drains, stalls, lags and losses', () => {
  test.each(SEEDS)(
    'seed %i',
    async (seed) => {
      const { findings, counts } = await simulate(await freshDatabase(), { seed });
      expect(findings).toEqual([]);
      // It was no idle run.
      expect(counts.booked).toBeGreaterThan(100);
      expect(counts.fromDatabase).toBeGreaterThan(10);
    },
    TIMEOUT_MS,
  );
});

/** What is broken on purpose, and how the invariant that must notice begins. */
const FAULTS: [Fault, string][] = [
  ['no-cap', 'occupancy:'],
  ['no-intake', 'intake:'],
  ['no-demotion', 'outranked:'],
  ['ledger-falls', 'history:'],
  ['endless-bookings', 'bookings:'],
  ['no-floor', 'floor:'],
  ['silent-trip', 'tripped:'],
];
/** Not every run comes to the place where a fault shows. */
const TRIES = 5;

describe('92: each invariant can fail', () => {
  test.each(FAULTS)(
    '%s',
    async (fault, invariant) => {
      let found: string[] = [];
      for (let seed = 1; seed <= TRIES && found.length === 0; seed++) {
        const { findings } = await simulate(await freshDatabase(), { seed, fault });
        found = findings.filter((finding) => finding.startsWith(invariant));
      }
      expect(found).not.toEqual([]);
    },
    TRIES * TIMEOUT_MS,
  );
});
