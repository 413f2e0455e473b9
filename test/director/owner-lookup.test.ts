import { beforeEach, describe, expect, test } from 'vitest';
import { type OwnerEvidence, ownerOf, phoneStep, type RowReading } from '../../server/director/owner-lookup.ts';
import { Owners } from '../../server/director/owners.ts';
import { PendingMoves } from '../../server/director/pending-moves.ts';
import { SeatMap } from '../../server/director/seat-map.ts';
import type { HostName, OwnerEntry } from '../../server/director/seat-view.ts';
import { HandClock } from '../support/hand-clock.ts';

const nothing: OwnerEvidence = { pending: null, entry: null, row: 'none', floor: 0 };

const entry = (cellId: string, epoch: number, freshness: OwnerEntry['freshness'] = 'fresh'): OwnerEntry => ({
  cellId,
  epoch,
  freshness,
  incarnation: 'one',
  generation: 1,
  state: 'active',
  joinedAt: 0,
  ageMs: 700,
});
const own = (cellId: string, epoch: number) => ({ cellId, epoch, source: 'own' as const, ageMs: 20 });
const announced = (cellId: string, epoch: number) => ({ cellId, epoch, source: 'change' as const, ageMs: 20 });
const row = (cellId: string, epoch: number, live = true): RowReading => ({ cellId, epoch, live });
const owner = (evidence: Partial<OwnerEvidence>) => {
  const verdict = ownerOf({ ...nothing, ...evidence });
  return 'owner' in verdict ? verdict.owner : verdict.unknown;
};

describe('F7: who serves a host', () => {
  test.each<[string, Partial<OwnerEvidence>, string]>([
    ['pending', { pending: own('Y', 6), entry: entry('X', 5), row: row('X', 5) }, 'Y 6 pending'],
    [
      'F6 a move shadows the retained seat at once',
      { pending: own('Y', 6), entry: entry('X', 5, 'retained') },
      'Y 6 pending',
    ],
    ['fresh', { entry: entry('X', 5), row: row('X', 5) }, 'X 5 fresh'],
    ['O2 retained', { entry: entry('X', 5, 'retained'), row: 'unavailable', floor: 5 }, 'X 5 retained'],
    ['O15 the row alone', { row: row('X', 5) }, 'X 5 row'],
    ['F5 the seat, while the ledger trails', { entry: entry('Y', 6), row: row('X', 5) }, 'Y 6 fresh'],
    ['F5 the row, after a move of the database’s own', { entry: entry('X', 5), row: row('Y', 6) }, 'Y 6 row'],
    [
      'O13 the row beats a retained seat of a lower epoch',
      { entry: entry('X', 5, 'retained'), row: row('Y', 6) },
      'Y 6 row',
    ],
    ['O17 a seat beats a move of a lower epoch', { pending: own('Y', 6), entry: entry('Z', 7) }, 'Z 7 fresh'],
    ['P2 at one epoch the row', { entry: entry('X', 6), row: row('Y', 6) }, 'Y 6 row'],
    [
      'P2 at one epoch what the row was said to be',
      { pending: announced('Y', 6), entry: entry('X', 6) },
      'Y 6 pending',
    ],
    ['at one epoch a seat before a promise of ours', { pending: own('Y', 6), entry: entry('X', 6) }, 'X 6 fresh'],
    ['at one epoch the row before a promise of ours', { pending: own('Y', 6), row: row('X', 6) }, 'X 6 row'],
    [
      'the first of several that agree',
      { pending: own('Y', 6), entry: entry('Y', 6), row: row('Y', 6) },
      'Y 6 pending',
    ],
  ])('%s', (_, evidence, told) => {
    const found = owner(evidence);
    expect(typeof found === 'string' ? found : `${found.cellId} ${found.epoch} ${found.source}`).toBe(told);
  });

  test('F8, O15: nothing at all is no absence', () => {
    expect(owner({})).toBe('row_missing');
    expect(owner({ row: 'unavailable' })).toBe('store_unavailable');
    expect(owner({ floor: 5 })).toBe('row_trails');
    expect(owner({ floor: 5, row: 'unavailable' })).toBe('store_unavailable');
  });

  test('O22, F5: without the row, a seat below what was once heard of is not believed', () => {
    expect(owner({ entry: entry('X', 5, 'retained'), row: 'unavailable', floor: 7 })).toBe('store_unavailable');
    expect(owner({ entry: entry('X', 5, 'retained'), row: row('X', 5), floor: 7 })).toMatchObject({ cellId: 'X' });
  });

  test('is live by its row, or by a feed that shows the host there now', () => {
    expect(owner({ row: row('X', 5, false) })).toMatchObject({ live: false });
    expect(owner({ pending: announced('X', 5), row: row('X', 5, false) })).toMatchObject({ live: false });
    expect(owner({ entry: entry('X', 5, 'retained'), row: row('X', 5, false) })).toMatchObject({ live: false });
    expect(owner({ entry: entry('X', 5), row: row('X', 5, false) })).toMatchObject({ live: true });
    expect(owner({ entry: entry('Y', 6, 'retained'), row: row('X', 5, false) })).toMatchObject({ live: true });
  });
});

describe('what a phone gets', () => {
  const live = ownerOf({ ...nothing, row: row('X', 5) });
  const dead = ownerOf({ ...nothing, row: row('X', 5, false) });
  const unknown = ownerOf(nothing);
  const trailing = ownerOf({ ...nothing, floor: 5 });

  test.each([
    ['a live owner', live, true, true, 'serve'],
    ['a live owner, before all cells were heard', live, false, true, 'serve'],
    ['a dead home', dead, true, true, 'assign'],
    ['no row', unknown, true, true, 'assign'],
    ['F8 no row, and a seat may be where nobody looked yet', unknown, false, true, 'wait'],
    ['a dead home, and a seat may be where nobody looked yet', dead, false, true, 'wait'],
    ['F8 no row, of a host that was seated somewhere: it may sit there still (P3)', trailing, true, true, 'wait'],
    ['no row in a fleet where every seat has one', unknown, false, false, 'assign'],
  ] as const)('%s', (_, verdict, complete, reserve, step) => {
    expect(phoneStep(verdict, complete, reserve)).toBe(step);
  });
});

describe('through the map and the moves, by the clock', () => {
  const h1: HostName = { userId: 'user-1', relayHostId: 'AAAAAAAAAAAAAAAA' };
  const head = {
    v: 1 as const,
    at: 0,
    draining: false,
    counts: { controls: 1, seats: 1 },
    seq: 1,
  };
  let clock: HandClock;
  let seats: SeatMap;
  let pending: PendingMoves;
  let owners: Owners;

  beforeEach(() => {
    clock = new HandClock();
    seats = new SeatMap(clock, { retentionMs: 60_000 });
    pending = new PendingMoves(clock);
    owners = new Owners({ seats, pending, cells: () => [] });
    seats.onPage((cellId) => pending.settle(cellId, seats));
    seats.setCells(['X', 'Y'].map((cellId) => ({ cellId, incarnation: cellId, required: true })));
  });

  function reads(cellId: string, epoch: number | null): void {
    const refresh = seats.begin(cellId);
    if (refresh === null) throw new Error('no such cell');
    const seat = { ...h1, epoch: epoch ?? 0, generation: 1, state: 'active' as const, joinedAt: 0 };
    const full = epoch === null ? [] : [seat];
    seats.apply(refresh, {
      ok: true,
      read: { kind: 'full', head: { ...head, cellId, incarnation: cellId, full, recentlyLeft: [] } },
    });
  }
  function fails(cellId: string, failure: 'timeout' | 'unauthorized'): void {
    const refresh = seats.begin(cellId);
    if (refresh !== null) seats.apply(refresh, { ok: false, failure });
  }
  const found = (reading: RowReading = 'unavailable') => {
    const verdict = owners.judge(h1, reading);
    return 'owner' in verdict ? `${verdict.owner.cellId} ${verdict.owner.epoch}` : verdict.unknown;
  };
  const moved = (cellId: string, epoch: number) =>
    owners.announced({
      id: 1,
      kind: 'moved',
      from_cell: 'X',
      to_cell: cellId,
      user_id: h1.userId,
      relay_host_id: h1.relayHostId,
      epoch,
      rule: 'dead-reserve',
      detail: null,
      at: 0,
    });

  test('O4: a cell that refuses the director is no owner; Postgres says, or the owner is unknown', () => {
    reads('X', 5);
    clock.advance(5_000);
    expect(found()).toBe('X 5');
    fails('X', 'unauthorized');
    expect(found()).toBe('store_unavailable');
    expect(found('none')).toBe('row_trails');
    expect(found({ cellId: 'X', epoch: 5, live: true })).toBe('X 5');
  });

  test('O2, O5: kept to 59.999 s of silence, unknown from 60 s on', () => {
    reads('X', 5);
    fails('X', 'timeout');
    clock.advance(59_999);
    expect(found()).toBe('X 5');
    clock.advance(1);
    expect(found()).toBe('store_unavailable');
  });

  test('O13: kept under a cell that fails, the host turns up elsewhere at a higher epoch; at a lower one it does not', () => {
    reads('X', 5);
    fails('X', 'timeout');
    reads('Y', 4);
    expect(found()).toBe('X 5');
    reads('Y', 6);
    expect(found()).toBe('Y 6');
  });

  test('O17, F6: moved here off a cell that is still retained, it routes before the next poll', () => {
    reads('X', 5);
    fails('X', 'timeout');
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'own');
    expect(found()).toBe('Y 6');
    reads('Y', 6);
    expect(pending.of(h1)).toBeNull();
    expect(found()).toBe('Y 6');
  });

  test('O18: moved by another director, it routes when the change is read', () => {
    reads('X', 5);
    moved('Y', 6);
    expect(found()).toBe('Y 6');
  });

  test('O18, F9: nobody came: after its time the move counts no longer, and the seat that it outranks does not come back', () => {
    reads('X', 5);
    moved('Y', 6);
    clock.advance(33_000);
    reads('X', 5);
    reads('Y', null);
    expect(found()).toBe('store_unavailable');
    expect(found({ cellId: 'Y', epoch: 6, live: true })).toBe('Y 6');
  });

  test('O25: the row of another director’s move is a floor from its first reading on', () => {
    reads('X', 5);
    expect(found({ cellId: 'Y', epoch: 8, live: true })).toBe('Y 8');
    expect(seats.floor(h1)).toBe(8);
    moved('Y', 9);
    expect(seats.floor(h1)).toBe(9);
  });
});
