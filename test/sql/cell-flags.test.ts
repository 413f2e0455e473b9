import { afterAll, expect, test } from 'vitest';
import { type CellFlags, readCellFlags } from '../../contract/cell-flags.ts';
import { freshDatabase } from '../support/database.ts';

const database = await freshDatabase();
afterAll(() => database.drop());

const KNOWN: Record<keyof CellFlags, true> = {
  readinessLocal: true,
  ticketCheck: true,
  rejectionFence: true,
  readTimeoutMarginMs: true,
  admitMode: true,
  intakePerSec: true,
  reserveDryRun: true,
  reregisterInFlight: true,
  deadManTripSlots: true,
};

const VALUES = [
  ...[true, false, null, [], {}, [1], { a: 1 }],
  ...['', 'db', 'reserve', 'off', 'shadow', 'enforce', 'on', '2', 'true'],
  ...[-1, 0, 1e-9, 0.5, 1, 1.5, 2, 16, 17, 63.5, 64, 65, 999, 999.5, 1_000, 1_000.5, 1_001, 60_000, 60_001, 1e12],
];

// what the database lets through and a cell then voids would leave the cell on the flags of before
test.each([...Object.keys(KNOWN), 'aNewerFlag'])('84: the database accepts of %s what a cell accepts', async (name) => {
  const sets = VALUES.map((value) => ({ [name]: value }));
  const rows = await database.query<{ valid: boolean }>(
    'select relay.flags_are_valid(f.flags) as valid from jsonb_array_elements($1::jsonb) with ordinality f (flags, n) order by n',
    [JSON.stringify(sets)],
  );
  const differing = sets.filter((flags, n) => rows[n]?.valid !== readCellFlags(flags).ok);
  expect(differing).toEqual([]);
  expect(rows.some(({ valid }) => valid)).toBe(true);
  expect(rows.every(({ valid }) => valid)).toBe(name === 'aNewerFlag');
});
