import { describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { simulate } from './simulation.ts';

const SEEDS = Array.from({ length: 20 }, (_, n) => n + 1);
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
