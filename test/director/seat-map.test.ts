import { beforeEach, describe, expect, test } from 'vitest';
import type { FeedSeat } from '../../contract/seat-feed.ts';
import type { FeedFailure } from '../../server/director/feed-outcomes.ts';
import { FeedRead } from '../../server/director/feed-read.ts';
import { type CellEvent, SeatMap } from '../../server/director/seat-map.ts';
import { HandClock } from '../support/hand-clock.ts';
import { fullPage, hostOf, seatOf } from './support/feed.ts';

/** `ownership.md` O1–O14, O20, O22: what a director's map holds after a row of refreshes. X and Y are cells, W is 60 s. */

const W = 60_000;
const h1 = hostOf(1);
const h2 = hostOf(2);
const h3 = hostOf(3);
const RETAINING: FeedFailure[] = ['timeout', 'unreachable', 'server_error', 'gateway'];

let clock: HandClock;
let map: SeatMap;
let events: CellEvent[];

beforeEach(() => {
  clock = new HandClock();
  build(W);
});

function build(retentionMs: number): void {
  map = new SeatMap(clock, { retentionMs });
  events = [];
  map.onCell((event) => events.push(event));
  configure('X', 'Y');
}

function configure(...cellIds: string[]): void {
  map.setCells(cellIds.map((cellId) => ({ cellId, incarnation: `${cellId}-1`, required: true })));
}

function begin(cellId: string) {
  const refresh = map.begin(cellId);
  if (refresh === null) throw new Error(`${cellId} is not polled`);
  return refresh;
}

function succeed(cellId: string, seats: FeedSeat[], refresh = begin(cellId)) {
  const step = new FeedRead(cellId, null).take(fullPage(cellId, seats));
  if (step.step !== 'complete') throw new Error(JSON.stringify(step));
  return map.apply(refresh, { ok: true, read: step.read });
}

const fail = (cellId: string, failure: FeedFailure = 'timeout', refresh = begin(cellId)) =>
  map.apply(refresh, { ok: false, failure });

/** Fails every second from now on, for so long. */
function failFor(cellId: string, ms: number): void {
  for (let waited = 0; waited < ms; waited += 1_000) {
    clock.advance(Math.min(1_000, ms - waited));
    fail(cellId);
  }
}

const cellOf = (host: typeof h1) => map.owner(host)?.cellId ?? null;
const unavailable = () => events.filter(({ type }) => type === 'unavailable');

describe('retention', () => {
  beforeEach(() => {
    succeed('X', [seatOf(h1, 5), seatOf(h2, 3)]);
    events.length = 0;
  });

  test('O1 a complete read routes its hosts', () => {
    expect([cellOf(h1), cellOf(h2), cellOf(h3)]).toEqual(['X', 'X', null]);
    expect(map.owner(h1)).toMatchObject({ epoch: 5, freshness: 'fresh', ageMs: 0, incarnation: 'X-1' });
    expect(events).toEqual([]);
  });

  test('O2 a timeout changes nothing but the freshness, and says how old the seats are', () => {
    clock.advance(5_000);
    expect(fail('X')).toEqual({ action: 'retained', entries: 2, ageMs: 5_000 });
    expect(map.owner(h1)).toMatchObject({ cellId: 'X', epoch: 5, freshness: 'retained', ageMs: 5_000 });
    expect(events).toEqual([]);
  });

  test.each(RETAINING)('O3 %s retains', (failure) => {
    clock.advance(5_000);
    expect(fail('X', failure)).toMatchObject({ action: 'retained' });
    clock.advance(W - 5_001);
    expect(cellOf(h1)).toBe('X');
    expect(events).toEqual([]);
  });

  test('O4 a refused credential drops at once, with one event', () => {
    clock.advance(5_000);
    expect(fail('X', 'unauthorized')).toEqual({ action: 'dropped', entries: 0, ageMs: 5_000 });
    expect(cellOf(h1)).toBeNull();
    fail('X', 'unauthorized');
    expect(events).toEqual([
      expect.objectContaining({ type: 'unavailable', cellId: 'X', reason: 'unauthorized', retainedForMs: 5_000 }),
    ]);
    expect(map.floor(h1)).toBe(5);
  });

  test('O5 seats are kept for the retention and not a millisecond longer', () => {
    const lastGoodAt = clock.wallNow();
    failFor('X', W - 1);
    expect(cellOf(h1)).toBe('X');
    clock.advance(1);
    expect(events).toEqual([
      { type: 'unavailable', cellId: 'X', reason: 'retention_expired', lastGoodAt, retainedForMs: W },
    ]);
    expect(cellOf(h1)).toBeNull();
    failFor('X', 5_000);
    expect(fail('X')).toMatchObject({ action: 'expired', entries: 0 });
    expect(unavailable()).toHaveLength(1);
  });

  test('O7 a refresh that never ends does not stretch the retention', () => {
    begin('X');
    clock.advance(W);
    expect(unavailable()).toHaveLength(1);
  });

  test('O7 a director that was stopped finds the seats expired before its timer says so', () => {
    const late = new SeatMap({ ...lateTimers(clock) }, { retentionMs: W });
    late.setCells([{ cellId: 'X', incarnation: null, required: true }]);
    const step = new FeedRead('X', null).take(fullPage('X', [seatOf(h1, 5)]));
    if (step.step !== 'complete') throw new Error('not complete');
    late.apply(late.begin('X') as never, { ok: true, read: step.read });
    clock.advance(W);
    expect(late.owner(h1)).toBeNull();
    expect(late.floor(h1)).toBe(5);
  });

  test('O8 a success replaces all of them', () => {
    clock.advance(40_000);
    expect(succeed('X', [seatOf(h2, 3), seatOf(h3, 1)])).toMatchObject({ action: 'replaced', entries: 2 });
    expect([cellOf(h1), cellOf(h2), cellOf(h3)]).toEqual([null, 'X', 'X']);
    expect(map.leavers(h1)).toEqual([{ cellId: 'X', incarnation: 'X-1', epoch: 5, closeCode: undefined, ageMs: 0 }]);
  });

  test('O9 a success after the expiry brings them back, and says that there is a gap', () => {
    failFor('X', 120_000);
    events.length = 0;
    succeed('X', [seatOf(h1, 5)]);
    expect(cellOf(h1)).toBe('X');
    expect(events).toEqual([
      { type: 'open', cellId: 'X' },
      { type: 'gap', cellId: 'X' },
    ]);
  });

  test('O10 a cell that answers now and then never expires', () => {
    for (let i = 0; i < 10; i++) {
      failFor('X', W - 1);
      succeed('X', [seatOf(h1, 5)]);
    }
    expect(unavailable()).toEqual([]);
  });

  test('O11 a failing cell is kept while another is replaced', () => {
    fail('X');
    succeed('Y', [seatOf(h3, 1)]);
    succeed('Y', []);
    expect([cellOf(h1), cellOf(h2), cellOf(h3)]).toEqual(['X', 'X', null]);
  });

  test('O12 all are kept while all fail', () => {
    succeed('Y', [seatOf(h3, 1)]);
    clock.advance(30_000);
    for (const cellId of ['X', 'Y']) fail(cellId);
    expect([cellOf(h1), cellOf(h2), cellOf(h3)]).toEqual(['X', 'X', 'Y']);
  });

  test('O13 the higher epoch routes, however old it is', () => {
    clock.advance(50_000);
    fail('X');
    succeed('Y', [seatOf(h1, 6), seatOf(h2, 2)]);
    expect([cellOf(h1), cellOf(h2)]).toEqual(['Y', 'X']);
    expect(map.seats(h1).map(({ cellId, epoch }) => [cellId, epoch])).toEqual([
      ['Y', 6],
      ['X', 5],
    ]);
  });

  test('O14 a cell that leaves the configuration is forgotten at once, but for its epochs', () => {
    fail('X');
    configure('Y');
    expect(cellOf(h1)).toBeNull();
    expect(map.cell('X')).toBeUndefined();
    expect(unavailable()).toEqual([expect.objectContaining({ cellId: 'X', reason: 'removed' })]);
    expect(map.floor(h1)).toBe(5);
    clock.advance(2 * W);
    expect(unavailable()).toHaveLength(1);
  });

  test('O20 a refresh that began before the last one applied changes nothing', () => {
    const older = begin('X');
    const newer = begin('X');
    succeed('X', [seatOf(h2, 3)], newer);
    expect(succeed('X', [seatOf(h1, 9)], older)).toBeNull();
    expect(fail('X', 'unauthorized', older)).toBeNull();
    expect([cellOf(h1), cellOf(h2)]).toEqual([null, 'X']);
  });

  test('O20 a refresh of a cell that was taken away and registered again changes nothing', () => {
    const older = begin('X');
    configure('Y');
    configure('X', 'Y');
    expect(succeed('X', [seatOf(h1, 9)], older)).toBeNull();
    expect(map.cell('X')?.status).toBe('pending');
  });

  test('O22 the floor outlives the seat', () => {
    failFor('X', 2 * W);
    expect(cellOf(h1)).toBeNull();
    expect(map.floor(h1)).toBe(5);
    succeed('X', [seatOf(h1, 2)]);
    expect(map.floor(h1)).toBe(5);
  });

  test('a retention of 0 drops at the first failure, and not before', () => {
    build(0);
    succeed('X', [seatOf(h1, 5)]);
    clock.advance(1_500);
    expect(cellOf(h1)).toBe('X');
    expect(fail('X')).toMatchObject({ action: 'expired', entries: 0 });
    expect(unavailable()).toEqual([expect.objectContaining({ reason: 'retention_expired', retainedForMs: 1_500 })]);
    expect(map.floor(h1)).toBe(5);
  });
});

test('O6 the wall clock counts for nothing', () => {
  const wall = { shift: 0 };
  const shifted = Object.assign(Object.create(clock) as HandClock, {
    now: () => clock.now(),
    wallNow: () => clock.wallNow() + wall.shift,
    setTimeout: clock.setTimeout.bind(clock),
    clearTimeout: clock.clearTimeout.bind(clock),
  });
  map = new SeatMap(shifted, { retentionMs: W });
  configure('X');
  succeed('X', [seatOf(h1, 5)]);
  for (const shift of [3_600_000, -3_600_000]) {
    wall.shift = shift;
    clock.advance(20_000);
    fail('X');
    expect(map.owner(h1)).toMatchObject({ freshness: 'retained', ageMs: clock.now() });
  }
  clock.advance(20_000);
  expect(cellOf(h1)).toBeNull();
});

/** Timers of this clock never fire: as in a process that gets no time. */
function lateTimers(of: HandClock) {
  return {
    now: () => of.now(),
    wallNow: () => of.wallNow(),
    setTimeout: () => ({ cancelled: false }),
    clearTimeout: () => undefined,
  };
}
