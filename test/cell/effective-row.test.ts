import { describe, expect, it } from 'vitest';
import { decideRowWrite, type RowFacts, type RowWish } from '../../server/cell/effective-row.ts';

const RESERVE: RowWish = { mode: 'reserve', refreshed: true, tripped: false };
const TRIPPED: RowWish = { mode: 'db', refreshed: true, tripped: true };
const LEAVING: RowWish = { mode: 'db', refreshed: false, tripped: false };
const QUIET: RowFacts = { wish: RESERVE, known: 'reserve', ageMs: 0, writing: false, waiters: 0 };
const MINUTE = 60_000;

describe('the row that says how a cell really admits hosts', () => {
  it.each<[string, Partial<RowFacts>, 'db' | 'reserve' | null]>([
    ['71: is written at the first tick', { known: null }, 'reserve'],
    ['71: and not at the next', { ageMs: 14_999 }, null],
    ['71: is refreshed after 15 s', { ageMs: 15_000 }, 'reserve'],
    ['71: follows a change at once', { known: 'db' }, 'reserve'],
    ['71: has one write in flight', { known: 'db', writing: true }, null],
    ['71: is left alone by a cell that was never in reserve', { wish: null, known: null }, null],
    ['71: says db once on the way out', { wish: LEAVING }, 'db'],
    ['71: and never again', { wish: LEAVING, known: 'db', ageMs: 60 * MINUTE }, null],
    ['71: and again if nobody knows what it says', { wish: LEAVING, known: null }, 'db'],
    ['71: waits for those who wait for the pool', { known: 'db', waiters: 1 }, null],
    ['61: says db when the cell trips', { wish: TRIPPED }, 'db'],
    [
      '70: tripped, busy pool: not before 5:00',
      { wish: TRIPPED, known: 'db', ageMs: 5 * MINUTE - 1, waiters: 9 },
      null,
    ],
    ['70: tripped, busy pool: at 5:00', { wish: TRIPPED, known: 'db', ageMs: 5 * MINUTE, waiters: 9 }, 'db'],
    ['70: a reserve row is never forced', { ageMs: 60 * MINUTE, waiters: 1 }, null],
    ['70: nor written over one in flight', { wish: TRIPPED, known: 'db', ageMs: 6 * MINUTE, writing: true }, null],
  ])('%s', (_name, facts, mode) => {
    expect(decideRowWrite({ ...QUIET, ...facts })).toBe(mode);
  });
});
