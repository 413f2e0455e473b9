import { beforeEach, describe, expect, test } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import { type FeedChange, type FeedPage, feedPage } from '../../contract/seat-feed.ts';
import { CellSeats } from '../../server/director/cell-seats.ts';
import { FeedRead, type PageStep } from '../../server/director/feed-read.ts';
import { type FeedJoin, SeatMap } from '../../server/director/seat-map.ts';
import { HandClock } from '../support/hand-clock.ts';
import { changeOf, changesPage, fullPage, hostOf, seatOf } from './support/feed.ts';

/** What a reader makes of the pages of one refresh, and the map of the read that they make (`reserve-mode.md` 2.2). */

const h1 = hostOf(1);
const h2 = hostOf(2);
const from = { incarnation: 'X-1', seq: 10 };
const join = (seq: number, host = h1, epoch = 5, more: Partial<FeedChange> = {}) =>
  changeOf(seq, 'join', host, epoch, { state: 'active', ...more });

const take = (...pages: FeedPage[]): PageStep => {
  const read = new FeedRead('X', from);
  const steps = pages.map((page) => read.take(page));
  for (const step of steps.slice(0, -1)) expect(step.step).toBe('more');
  return steps.at(-1) as PageStep;
};

describe('86 pages', () => {
  test.each<[string, PageStep, PageStep['step']]>([
    ['nothing new', take(changesPage('X', [], { seq: 10 })), 'complete'],
    ['the next changes', take(changesPage('X', [join(11), join(12)])), 'complete'],
    ['a page that stops short of the head it names', take(changesPage('X', [join(11)], { seq: 12 })), 'more'],
    ['two pages', take(changesPage('X', [join(11)], { more: true }), changesPage('X', [join(12)])), 'complete'],
    [
      'everything after a first page',
      take(changesPage('X', [join(11)], { more: true }), fullPage('X', [])),
      'complete',
    ],
    ['a hole', take(changesPage('X', [join(12)])), 'failed'],
    ['a change told twice', take(changesPage('X', [join(10)])), 'failed'],
    [
      'a hole between pages',
      take(changesPage('X', [join(11)], { more: true }), changesPage('X', [join(13)])),
      'failed',
    ],
    ['an empty page behind the head', take(changesPage('X', [], { seq: 11 })), 'failed'],
    ['an empty page that says there is more', take(changesPage('X', [], { seq: 10, more: true })), 'failed'],
    ['a head behind the cursor', take(changesPage('X', [], { seq: 9 })), 'failed'],
    ['changes of another process', take(changesPage('X', [join(11)], { incarnation: 'X-2' })), 'failed'],
    ['another cell', take(changesPage('Y', [join(11)])), 'failed'],
  ])('%s', (_, step, expected) => {
    expect(step.step).toBe(expected);
  });

  test('changes without a cursor', () => {
    expect(new FeedRead('X', null).take(changesPage('X', [join(1)]))).toMatchObject({ failure: 'cursor_gap' });
  });

  test('the fifth page must be the last', () => {
    const read = new FeedRead('X', from);
    const page = (n: number) => changesPage('X', [join(10 + n)], { more: true });
    for (let n = 1; n < LIMITS.feedPagesAPoll; n++) expect(read.take(page(n)).step).toBe('more');
    expect(read.take(page(LIMITS.feedPagesAPoll))).toMatchObject({ failure: 'too_far_behind' });
  });
});

describe('86 what a read does to the map', () => {
  let clock: HandClock;
  let map: SeatMap;
  let joins: FeedJoin[];

  beforeEach(() => {
    clock = new HandClock();
    joins = [];
    map = new SeatMap(clock, { retentionMs: 60_000 });
    map.setCells([{ cellId: 'X', incarnation: 'X-1', required: true }]);
    map.onPage((_, page) => joins.push(...page.joins));
    read(fullPage('X', [seatOf(h1, 5, { generation: 3 })], { seq: 10 }));
    joins = [];
  });

  function read(page: FeedPage): void {
    const refresh = map.begin('X');
    const step = new FeedRead('X', refresh?.cursor ?? null).take(page);
    if (refresh === null || step.step !== 'complete') throw new Error(`not complete: ${JSON.stringify(step)}`);
    map.apply(refresh, { ok: true, read: step.read });
  }
  const changes = (...list: FeedChange[]) => read(changesPage('X', list));

  test('a change of a socket that was superseded is passed over', () => {
    changes(changeOf(11, 'leave', h1, 5, { generation: 2 }), changeOf(12, 'drain-only', h1, 5, { generation: 2 }));
    expect(map.owner(h1)).toMatchObject({ epoch: 5, generation: 3, state: 'active' });
  });

  test('drain-only and active turn the state; of a host without a seat they seat nobody', () => {
    changes(changeOf(11, 'drain-only', h1, 5, { generation: 3 }), changeOf(12, 'active', h2, 9));
    expect([map.owner(h1)?.state, map.owner(h2), map.floor(h2)]).toEqual(['drain-only', null, 9]);
    changes(changeOf(13, 'active', h1, 5, { generation: 3 }));
    expect(map.owner(h1)?.state).toBe('active');
  });

  test('what a seat says already is not remembered a second time', () => {
    changes(changeOf(11, 'drain-only', h1, 5, { generation: 3 }), changeOf(12, 'leave', h1, 4, { generation: 1 }));
    expect(map.sizes().floors).toBe(0);
    changes(changeOf(13, 'reserve', h1, 9), join(14, h1, 6, { generation: 4 }));
    expect([map.floor(h1), map.sizes().floors]).toEqual([9, 1]);
    changes(join(15, h1, 9, { generation: 5 }));
    expect([map.floor(h1), map.sizes().floors]).toEqual([9, 0]);
  });

  test('a booking seats nobody, and is remembered', () => {
    changes(changeOf(11, 'reserve', h2, 7, { reservedBy: 'd1' }), changeOf(12, 'reserve', h2, 6, { reservedBy: 'd2' }));
    expect([map.owner(h2), map.bookedEpoch(h2), map.floor(h2), joins]).toEqual([null, 7, 7, []]);
  });

  test('a join says who booked it; one of a new socket is a join too', () => {
    changes(join(11, h2, 7, { reservedBy: 'd1' }), join(12, h1, 5, { generation: 4 }));
    expect(joins).toEqual([
      { ...h2, epoch: 7, joinedAt: 10_011, reservedBy: 'd1' },
      { ...h1, epoch: 5, joinedAt: 10_012 },
    ]);
    expect(map.owner(h1)?.generation).toBe(4);
  });

  test('a kind of change that it does not know is passed over, and its epoch remembered', () => {
    changes(changeOf(11, 'teleport', h1, 8, { generation: 9 }), join(12, h2, 1));
    expect([map.owner(h1)?.epoch, map.floor(h1), map.owner(h2)?.epoch]).toEqual([5, 8, 1]);
  });

  test('members that it does not know are skipped', () => {
    const page = feedPage.parse({
      ...fullPage('X', [], { seq: 11 }),
      weather: 'fine',
      full: [{ ...seatOf(h2, 4), hat: 1 }],
    });
    read(page);
    expect(map.owner(h2)).not.toHaveProperty('hat');
  });

  test('who left is remembered with code and age, by the clock of the cell; twice told is once', () => {
    const left = changeOf(11, 'leave', h1, 5, { generation: 3, closeCode: 4409, at: 19_000 });
    read(changesPage('X', [left], { at: 20_000 }));
    const recentlyLeft = [{ ...h1, epoch: 5, closeCode: 4409, at: 19_000 }];
    clock.advance(500);
    read(fullPage('X', [], { seq: 11, at: 20_500, recentlyLeft }));
    expect(map.leavers(h1)).toEqual([{ cellId: 'X', incarnation: 'X-1', epoch: 5, closeCode: 4409, ageMs: 1_500 }]);
  });

  test('a host that came back at its epoch and left again has left twice: the newest counts', () => {
    const leave = (seq: number, closeCode: number) =>
      changeOf(seq, 'leave', h1, 5, { generation: 3, closeCode, at: 20_000 });
    read(changesPage('X', [leave(11, 1006)], { at: 20_000 }));
    clock.advance(5_000);
    read(changesPage('X', [join(12, h1, 5, { generation: 3 }), { ...leave(13, 4409), at: 25_000 }], { at: 25_000 }));
    expect(map.leavers(h1).map(({ closeCode }) => closeCode)).toEqual([4409, 1006]);
  });

  test('the mode: raw before effective before the flags', () => {
    const flagsApplied = { generation: 1, flags: { admitMode: 'reserve' } };
    read(fullPage('X', [], { seq: 11, flagsApplied }));
    expect(map.cell('X')?.mode).toBe('reserve');
    read(fullPage('X', [], { seq: 11, flagsApplied, admitModeEffective: 'reserve', admitModeRaw: 'db' }));
    expect(map.cell('X')?.mode).toBe('db');
    read(fullPage('X', [], { seq: 11, incarnation: 'X-2' }));
    expect(map.cell('X')?.mode).toBeNull();
  });

  test('F13 of a page nothing is kept but the seats and the numbers of its head', () => {
    const cell = new CellSeats();
    const intake = { perSec: 5, burst: 20, tokens: 3 };
    const step = new FeedRead('X', null).take(fullPage('X', [seatOf(h1, 5)], { intake }));
    if (step.step !== 'complete') throw new Error('not complete');
    cell.take(step.read);
    expect(cell.numbers).toEqual({ draining: false, counts: { controls: 1, seats: 1 }, intake });
  });

  test('changes whose ground went while they were under way are a gap', () => {
    const refresh = map.begin('X');
    const step = new FeedRead('X', refresh?.cursor ?? null).take(changesPage('X', [join(11, h2, 3)]));
    clock.advance(60_000);
    if (refresh === null || step.step !== 'complete') throw new Error('not complete');
    expect(map.apply(refresh, { ok: true, read: step.read })).toMatchObject({ action: 'expired', entries: 0 });
    expect([map.owner(h2), map.begin('X')?.cursor]).toEqual([null, null]);
  });
});
