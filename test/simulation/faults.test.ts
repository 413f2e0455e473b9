import { describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { type Fault, simulate } from './simulation.ts';

/** Of a machine with other work; each takes a few seconds. */
const TIMEOUT_MS = 180_000;
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
