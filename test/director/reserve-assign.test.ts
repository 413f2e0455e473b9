import { describe, expect, test } from 'vitest';
import type { AdmitMode } from '../../server/sql-interface.ts';
import { hostOf } from './support/feed.ts';
import { ReserveCell } from './support/reserve-cell.ts';
import { ReserveDirector, type ReserveDirectorOptions } from './support/reserve-director.ts';

/** Scenario 89: the reserve plan, in front of the real books and logs of cells. */

const h1 = hostOf(1);
const booked = (cellId: string, epoch: number) => ({
  kind: 'answer',
  rule: 'reserve-booked',
  seat: { cellId, cellUrl: `https://${cellId}.example.test`, epoch },
});
const database = { kind: 'database', bookFirst: false };

function fleet(cells: ReserveCell[], options?: ReserveDirectorOptions): ReserveDirector {
  return new ReserveDirector(cells, options).warm();
}

const bookings = (cells: readonly ReserveCell[]) => cells.flatMap(({ asked }) => asked).flatMap(({ items }) => items);

describe('who leaves it to the database (89)', () => {
  test('a director whose placement is off: no floor, nothing seen', async () => {
    const x = new ReserveCell('X');
    x.join(h1, 6);
    const director = fleet([x], { mode: 'off' });
    expect(await director.ask(h1)).toEqual(database);
    expect(director.memory.hints(h1)).toEqual({ epoch_floor: null, seen: null });
  });

  test('a fleet without a reserve cell, with a floor and what the map shows', async () => {
    const x = new ReserveCell('X', { admit_mode: 'db' });
    x.mode = 'db';
    x.join(h1, 6);
    const director = fleet([x]);
    expect(await director.ask(h1)).toEqual(database);
    expect(director.memory.hints(h1)).toEqual({ epoch_floor: 6, seen: { cell_id: 'X', epoch: 6 } });
    expect(director.memory.hints(hostOf(2))).toEqual({ epoch_floor: 0, seen: null });
    expect(director.rowReads).toEqual([]);
  });

  test('a dry run: a trial booking goes out, and neither the answer nor the book changes', async () => {
    const x = new ReserveCell('X');
    const director = fleet([x], { mode: 'dry-run' });
    expect(await director.ask(h1)).toEqual(database);
    await director.settle();
    director.clock.advance(10);
    expect(x.asked).toMatchObject([{ dryRun: true, items: [{ epoch: 1 }] }]);
    expect(x.bookedEpoch(h1)).toBe(0);
    expect(director.memory.hints(h1)).toEqual({ epoch_floor: null, seen: null });
  });

  test('a map that has not heard every cell gives no floor, and still what it has seen', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    x.join(h1, 6);
    y.down = true;
    const director = new ReserveDirector([x, y]);
    director.poll();
    expect(director.memory.hints(h1)).toEqual({ epoch_floor: null, seen: { cell_id: 'X', epoch: 6 } });
    y.down = false;
    director.poll();
    expect(director.memory.hints(h1)).toMatchObject({ epoch_floor: 6 });
  });
});

describe('from memory (89)', () => {
  test('a seated host, without booking or read', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    x.join(h1, 6);
    const director = fleet([x, y]);
    expect(await director.ask(h1)).toMatchObject({ rule: 'reserve-memory', seat: { cellId: 'X', epoch: 6 } });
    expect(bookings([x, y])).toEqual([]);
    expect(director.rowReads).toEqual([]);
  });

  test.each([1000, 1006, 4408, 4429])('a host that left with %i within 10 min, and not later', async (code) => {
    const x = new ReserveCell('X');
    x.join(h1, 6);
    const director = fleet([x]);
    x.leave(h1, code);
    director.pass(600_000 - 1_000);
    expect(await director.ask(h1)).toMatchObject({ rule: 'reserve-memory', seat: { cellId: 'X', epoch: 6 } });
    expect(bookings([x])).toEqual([]);
    director.pass(2_000);
    expect(await director.ask(h1)).toMatchObject(booked('X', 7));
    expect(director.rowReads).toHaveLength(1);
  });

  test('not when its row names another cell at that epoch', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    x.join(h1, 6);
    const director = fleet([x, y]);
    director.memory.rowIs(h1, { cellId: 'Y', epoch: 6 });
    expect(await director.ask(h1)).toMatchObject({ rule: 'reserve-booked', seat: { epoch: 7 } });
  });

  test.each<[string, (cell: ReserveCell) => void]>([
    ['is drained', (cell) => Object.assign(cell, { draining: true })],
    ['has left reserve mode', (cell) => Object.assign(cell, { mode: 'db' })],
    ['takes no new hosts', (cell) => Object.assign(cell.row, { admission: 'migration-only' })],
    ['is not heard', (cell) => Object.assign(cell, { down: true })],
  ])('not to a cell that %s: a booking elsewhere', async (_, happens) => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    x.join(h1, 6);
    const director = fleet([x, y], { random: () => 0 });
    happens(x);
    director.pass(4_000);
    expect(await director.ask(h1)).toMatchObject(booked('Y', 7));
  });

  test('not at an epoch below one that was heard of, though the map shows that one no more: its row is read (P1)', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    const hosts = [h1, hostOf(2)];
    for (const host of hosts) x.join(host, 6);
    const director = fleet([x, y], { random: () => 0 });
    for (const host of hosts) x.leave(host, 1006);
    for (const host of hosts) y.join(host, 8);
    director.pass(1_000);
    y.down = true;
    director.pass(61_000);
    expect(director.map.seats(h1)).toEqual([]);
    director.row = { row: { cellId: 'Y', epoch: 8 } };
    expect(await director.ask(h1)).toMatchObject({ ...booked('X', 9), fromCellId: 'Y' });
    director.row = 'failed';
    expect(await director.ask(hostOf(2))).toMatchObject({ ...booked('X', 9), fromCellId: 'X' });
    expect(director.rowReads).toHaveLength(2);
  });

  test('a leaver only where there is room by the last poll', async () => {
    const [x, y] = [new ReserveCell('X', { ceiling: 1 }), new ReserveCell('Y')];
    x.join(h1, 6);
    const director = fleet([x, y]);
    x.leave(h1);
    x.join(hostOf(2), 1);
    director.pass(1_000);
    expect(await director.ask(h1)).toMatchObject(booked('Y', 7));
  });
});

describe('a restarted cell (89)', () => {
  test('is asked to take its host back first, at the same epoch and without intake', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    x.join(h1, 6);
    const director = fleet([x, y]);
    x.restart();
    director.pass(1_000);
    expect(await director.ask(h1)).toMatchObject({ rule: 'reserve-rebooked', seat: { cellId: 'X', epoch: 6 } });
    expect(bookings([x])).toMatchObject([{ epoch: 6, sticky: true }]);
    expect(x.bookedEpoch(h1)).toBe(6);
    expect(bookings([y])).toEqual([]);
  });

  test('that has no room: a booking elsewhere, and three bookings in all', async () => {
    const cells = ['X', 'Y', 'Z', 'W'].map((id) => new ReserveCell(id));
    const [x] = cells as [ReserveCell];
    x.join(h1, 6);
    const director = fleet(cells);
    x.restart();
    director.pass(1_000);
    for (const cell of cells) cell.mode = 'db';
    expect(await director.ask(h1)).toEqual(database);
    expect(bookings(cells)).toHaveLength(3);
    expect(bookings([x])[0]).toMatchObject({ epoch: 6, sticky: true });
  });
});

describe('a booking (89)', () => {
  test.each([4503, 4409])('for a host closed with %i: elsewhere, at what was known + 1', async (code) => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y', { ceiling: 10 })];
    x.join(h1, 6);
    // X is the emptier one
    y.join(hostOf(2), 1);
    const director = fleet([x, y], { random: () => 0 });
    x.leave(h1, code);
    director.pass(1_000);
    expect(await director.ask(h1)).toMatchObject(booked('Y', 7));
    expect(director.rowReads.map(({ timeoutMs }) => timeoutMs)).toEqual(code === 4409 ? [1_000] : []);
  });

  test('for one closed with 4409 lies above its row, unless the pool has waiters or the row is not to be had', async () => {
    const x = new ReserveCell('X');
    x.join(h1, 6);
    const director = fleet([x]);
    x.leave(h1, 4409);
    director.pass(1_000);
    director.row = 'failed';
    expect(await director.ask(h1)).toMatchObject(booked('X', 7));
    director.poolWaiters = 1;
    expect(await director.ask(h1)).toMatchObject(booked('X', 8));
    expect(director.rowReads).toHaveLength(1);
  });

  test('takes the row of a host closed with 4409 for its floor', async () => {
    const x = new ReserveCell('X');
    x.join(h1, 6);
    const director = fleet([x]);
    x.leave(h1, 4409);
    director.pass(1_000);
    director.row = { row: { cellId: 'X', epoch: 11 } };
    expect(await director.ask(h1)).toMatchObject(booked('X', 12));
  });

  test('of an unknown host: its row is read, in 2 s; a host without one starts at 1', async () => {
    const x = new ReserveCell('X');
    const director = fleet([x]);
    expect(await director.ask(h1)).toMatchObject(booked('X', 1));
    director.row = { row: { cellId: 'X', epoch: 41 } };
    expect(await director.ask(hostOf(2))).toMatchObject(booked('X', 42));
    expect(director.rowReads).toEqual([
      { host: h1, timeoutMs: 2_000 },
      { host: hostOf(2), timeoutMs: 2_000 },
    ]);
  });

  test('of an unknown host while the database is down: come back in 2 s', async () => {
    const director = fleet([new ReserveCell('X')]);
    director.row = 'failed';
    expect(await director.ask(h1)).toEqual({
      kind: 'refuse',
      refusal: { reason: 'reserve-database', retryAfterMs: 2_000 },
    });
  });

  test('goes above what the cell knows and the map does not yet', async () => {
    const x = new ReserveCell('X');
    const director = fleet([x]);
    await x.post(
      '/internal/reserve',
      JSON.stringify({ v: 1, directorId: 'other', items: [{ ...h1, epoch: 8, ttlMs: 30_000 }] }),
    );
    expect(await director.ask(h1)).toMatchObject(booked('X', 9));
    expect(bookings([x]).map(({ epoch }) => epoch)).toEqual([8, 1, 9]);
  });

  test('whose answer was lost is not given again: the next lies above it', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y', { ceiling: 50 })];
    const director = fleet([x, y]);
    x.deaf = true;
    y.deaf = true;
    expect(await director.ask(h1)).toEqual(database);
    expect(
      bookings([x, y])
        .map(({ epoch }) => epoch)
        .toSorted(),
    ).toEqual([1, 2]);
    expect(director.memory.hints(h1).epoch_floor).toBe(2);
  });

  test('whose answer never reached its host: asked again, it is booked above, and holds one unit', async () => {
    const x = new ReserveCell('X');
    const director = fleet([x]);
    expect(await director.ask(h1)).toMatchObject(booked('X', 1));
    director.poll();
    expect(await director.ask(h1)).toMatchObject(booked('X', 2));
    expect([x.bookedEpoch(h1), x.page(null).counts.bookings]).toEqual([2, 1]);
  });

  test('on a cell that dies at once: the next one goes elsewhere, above it', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y', { ceiling: 10 })];
    y.join(hostOf(2), 1);
    const director = fleet([x, y], { random: () => 0 });
    expect(await director.ask(h1)).toMatchObject(booked('X', 1));
    x.down = true;
    // also while the map still takes it for alive
    expect(await director.ask(h1)).toMatchObject(booked('Y', 3));
    director.pass(4_000);
    expect(await director.ask(h1)).toMatchObject(booked('Y', 4));
    expect(bookings([x])).toHaveLength(1);
  });

  test('goes to another cell when the first is full, at most three times', async () => {
    const cells = ['A', 'B', 'C', 'D', 'E'].map((id) => new ReserveCell(id));
    const director = fleet(cells);
    for (const cell of cells) cell.draining = true;
    expect(await director.ask(h1)).toEqual(database);
    const asked = cells.filter((cell) => cell.asked.length > 0);
    expect(asked).toHaveLength(3);
  });

  test('of two cells drawn at random the emptier one', async () => {
    const [x, y] = [new ReserveCell('X', { ceiling: 10 }), new ReserveCell('Y', { ceiling: 10 })];
    for (let n = 10; n < 18; n++) x.join(hostOf(n), 1);
    const director = fleet([x, y]);
    for (let n = 20; n < 24; n++) expect(await director.ask(hostOf(n))).toMatchObject(booked('Y', 1));
  });
});

describe('regions (89)', () => {
  const asia = { region: 'asia-east2' };

  test('the one asked for, then the default', async () => {
    const [us, as] = [new ReserveCell('us'), new ReserveCell('as', asia)];
    const director = fleet([us, as]);
    expect(await director.ask(h1, 'asia-east2')).toMatchObject(booked('as', 1));
    as.mode = 'db';
    director.pass(1_000);
    as.row = { ...as.row, ready: false };
    expect(await director.ask(hostOf(2), 'asia-east2')).toMatchObject(booked('us', 1));
  });

  test('where it was last, for a host that names none', async () => {
    const [us, as] = [new ReserveCell('us'), new ReserveCell('as', asia)];
    as.join(h1, 3);
    const director = fleet([us, as]);
    as.leave(h1, 4503);
    director.pass(1_000);
    expect(await director.ask(h1)).toMatchObject(booked('as', 4));
  });

  test('any, when nobody lives in those', async () => {
    const director = fleet([new ReserveCell('as', asia)]);
    expect(await director.ask(h1, 'atlantis')).toMatchObject(booked('as', 1));
  });

  test('new hosts are shared with the cells of the database by the room they have', async () => {
    const reserve = new ReserveCell('X', { ceiling: 300 });
    const db = new ReserveCell('D', { ceiling: 100, admit_mode: 'db' });
    db.mode = 'db';
    const draws = [0.74, 0, 0.76];
    const director = fleet([reserve, db], { random: () => draws.shift() ?? 0 });
    expect(await director.ask(h1)).toMatchObject(booked('X', 1));
    draws.splice(0, draws.length, 0.76);
    expect(await director.ask(hostOf(2))).toEqual(database);
    db.head = { counts: { controls: 0, seats: 0 } };
    director.pass(1_000);
    draws.splice(0, draws.length, 0);
    // it hides its ceiling: nobody knows how to share
    expect(await director.ask(hostOf(3))).toEqual(database);
  });
});

describe('a cell that is recorded as reserve and admits by the database (91)', () => {
  const fallback = (flags: { admitMode: AdmitMode }) => {
    const other = new ReserveCell('Y', { ceiling: 900 });
    other.mode = 'db';
    other.head = { flagsApplied: { generation: 1, flags } };
    return other;
  };

  test('is no place for new hosts on its way into reserve mode or out of it', async () => {
    const director = fleet([new ReserveCell('X'), fallback({ admitMode: 'db' })], { random: () => 0.99 });
    expect(await director.ask(h1)).toMatchObject(booked('X', 1));
  });

  test('is one once it has tripped', async () => {
    const director = fleet([new ReserveCell('X'), fallback({ admitMode: 'reserve' })], { random: () => 0.99 });
    expect(await director.ask(h1)).toEqual(database);
  });
});

describe('pace (89)', () => {
  test('without intake: come back, one after the other, in 1 to 10 s', async () => {
    const director = new ReserveDirector([new ReserveCell('X')]);
    director.poll();
    const retries: number[] = [];
    for (let n = 0; n < 15; n++) {
      const planned = await director.ask(hostOf(n));
      expect(planned).toMatchObject({
        kind: 'refuse',
        refusal: { reason: 'reserve-paced', cause: 'reserve_cells_paced' },
      });
      if (planned.kind === 'refuse') retries.push(planned.refusal.retryAfterMs ?? 0);
    }
    expect(retries.toSorted((a, b) => a - b)).toEqual(retries);
    expect(retries[0]).toBe(1_000);
    expect(retries.at(-1)).toBe(10_000);
  });

  test('a director sends a cell a fifth of its intake, four at once at most', async () => {
    const x = new ReserveCell('X');
    const director = fleet([x]);
    const askMany = async (from: number) => {
      let yes = 0;
      for (let n = from; n < from + 10; n++) if ((await director.ask(hostOf(n))).kind === 'answer') yes += 1;
      return yes;
    };
    expect(await askMany(0)).toBe(4);
    director.pass(2_000);
    expect(await askMany(100)).toBe(2);
  });

  test('the database instead, where it has a cell in the region', async () => {
    const db = new ReserveCell('D', { ceiling: 100, admit_mode: 'db' });
    db.mode = 'db';
    const director = new ReserveDirector([new ReserveCell('X'), db], { random: () => 0 });
    director.poll();
    expect(await director.ask(h1)).toEqual(database);
  });

  test('the database instead, when every cell is full: waiting brings no room', async () => {
    const x = new ReserveCell('X', { ceiling: 1 });
    x.join(hostOf(9), 1);
    expect(await fleet([x]).ask(h1)).toEqual(database);
  });
});

describe('the start of a director (89)', () => {
  test('a host last seen on a cell that has yet to tell its seats comes back in 1 s, for 30 s', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    const director = new ReserveDirector([x, y]);
    director.row = { row: { cellId: 'Y', epoch: 4 } };
    for (let second = 0; second < 30; second++) {
      director.poll([x]);
      expect(await director.ask(h1)).toEqual({
        kind: 'refuse',
        refusal: { reason: 'reserve-map-incomplete', retryAfterMs: 1_000 },
      });
      director.clock.advance(1_000);
    }
    director.poll([x]);
    expect(await director.ask(h1)).toMatchObject(booked('X', 5));
  });

  test('a host last seen on a cell whose first poll failed does not wait for it', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    y.down = true;
    const director = fleet([x, y]);
    director.row = { row: { cellId: 'Y', epoch: 4 } };
    expect(await director.ask(h1)).toMatchObject(booked('X', 5));
  });

  test('a host that nobody has seen goes to the database', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    y.down = true;
    const director = new ReserveDirector([x, y]);
    director.poll();
    expect(await director.ask(h1)).toEqual(database);
    expect(director.memory.hints(h1)).toEqual({ epoch_floor: null, seen: null });
  });

  test('a host is not sent back to a seat that it left for a newer one, on a cell that has yet to tell its seats (P1)', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    x.join(h1, 4);
    x.leave(h1, 1006);
    y.join(h1, 6);
    const director = new ReserveDirector([x, y]);
    director.row = { row: { cellId: 'Y', epoch: 6 } };
    director.poll([x]);
    expect(await director.ask(h1)).toMatchObject({ refusal: { reason: 'reserve-map-incomplete' } });
    expect(director.rowReads).toEqual([{ host: h1, timeoutMs: 1_000 }]);
    director.poll([y]);
    expect(await director.ask(h1)).toMatchObject({ rule: 'reserve-memory', seat: { cellId: 'Y', epoch: 6 } });
  });

  test('a host whose cell has answered need not wait for the others', async () => {
    const [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
    x.join(h1, 6);
    y.down = true;
    const director = new ReserveDirector([x, y]);
    director.poll();
    expect(await director.ask(h1)).toMatchObject({ rule: 'reserve-memory', seat: { cellId: 'X', epoch: 6 } });
  });
});

describe('a host last seen on a cell in db mode (04)', () => {
  test('asks the database first, and is booked only instead of being placed', async () => {
    const x = new ReserveCell('X');
    const db = new ReserveCell('D', { admit_mode: 'db' });
    db.mode = 'db';
    db.join(h1, 3);
    const director = fleet([x, db], { random: () => 0 });
    expect(await director.ask(h1)).toEqual({ kind: 'database', bookFirst: true });
    expect(bookings([x])).toEqual([]);
    expect(await director.bookInstead(h1)).toMatchObject(booked('X', 4));
    x.draining = true;
    expect(await director.bookInstead(h1)).toBeNull();
  });

  test('a cell that its row alone calls reserve counts as one', async () => {
    const [x, tripped] = [new ReserveCell('X'), new ReserveCell('T')];
    tripped.mode = 'db';
    tripped.join(h1, 3);
    const director = fleet([x, tripped], { random: () => 0 });
    expect(await director.ask(h1)).toMatchObject(booked('X', 4));
  });
});

describe('supersede (89)', () => {
  test('each older seat on another reserve cell is named exactly, and nobody else', async () => {
    const [x, y] = [new ReserveCell('X', { admission: 'migration-only' }), new ReserveCell('Y')];
    const db = new ReserveCell('D', { admit_mode: 'db', ready: false });
    db.mode = 'db';
    x.join(h1, 6);
    x.join(hostOf(2), 9);
    db.join(h1, 5);
    const director = fleet([x, y, db]);
    const [held] = director.map.seats(h1);
    expect(await director.ask(h1)).toMatchObject(booked('Y', 7));
    await director.settle();
    expect(x.demoted).toEqual([{ v: 1, ...h1, epoch: 6, joinedAt: held?.joinedAt }]);
    expect([...y.demoted, ...db.demoted]).toEqual([]);
  });
});
