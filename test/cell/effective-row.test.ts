import { describe, expect, it } from 'vitest';
import { decideRowWrite, type RowFacts, type RowWish } from '../../server/cell/effective-row.ts';

const RESERVE: RowWish = { mode: 'reserve', unleased: null, refreshed: true, tripped: false };
const TRIPPED: RowWish = { mode: 'db', unleased: 0, refreshed: true, tripped: true };
const LEFT: RowWish = { mode: 'db', unleased: 0, refreshed: false, tripped: false };
const LEAVING: RowWish = { mode: 'reserve', unleased: 9, refreshed: false, tripped: false };
const QUIET: RowFacts = { wish: RESERVE, known: RESERVE, ageMs: 0, writing: false, waiters: 0 };
const MINUTE = 60_000;

describe('the row that says how a cell really admits hosts', () => {
  it.each<[string, Partial<RowFacts>, 'db' | 'reserve' | null]>([
    ['71: is written at the first tick', { known: null }, 'reserve'],
    ['71: and not at the next', { ageMs: 14_999 }, null],
    ['71: is refreshed after 15 s', { ageMs: 15_000 }, 'reserve'],
    ['71: follows a change at once', { known: LEFT }, 'reserve'],
    ['71: has one write in flight', { known: LEFT, writing: true }, null],
    ['71: is left alone by a cell that was never in reserve', { wish: null, known: null }, null],
    ['71: says db once on the way out', { wish: LEFT }, 'db'],
    ['71: and never again', { wish: LEFT, known: LEFT, ageMs: 60 * MINUTE }, null],
    ['71: and again if nobody knows what it says', { wish: LEFT, known: null }, 'db'],
    ['71: waits for those who wait for the pool', { known: LEFT, waiters: 1 }, null],
    [
      '71: says on the way how many hosts have no lease yet',
      { wish: { ...LEAVING, unleased: 8 }, known: LEAVING },
      'reserve',
    ],
    ['71: and only when that has changed', { wish: LEAVING, known: LEAVING, ageMs: 60 * MINUTE }, null],
    ['61: says db when the cell trips', { wish: TRIPPED }, 'db'],
    [
      '70: tripped, busy pool: not before 5:00',
      { wish: TRIPPED, known: LEFT, ageMs: 5 * MINUTE - 1, waiters: 9 },
      null,
    ],
    ['70: tripped, busy pool: at 5:00', { wish: TRIPPED, known: LEFT, ageMs: 5 * MINUTE, waiters: 9 }, 'db'],
    ['70: a reserve row is never forced', { ageMs: 60 * MINUTE, waiters: 1 }, null],
    ['70: nor written over one in flight', { wish: TRIPPED, known: LEFT, ageMs: 6 * MINUTE, writing: true }, null],
  ])('%s', (_name, facts, mode) => {
    expect(decideRowWrite({ ...QUIET, ...facts })?.mode ?? null).toBe(mode);
  });
});
