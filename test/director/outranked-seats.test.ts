import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Database, openDatabase } from '../../server/database.ts';
import { Ledger } from '../../server/director/ledger.ts';
import { whenRowIsAhead } from '../../server/director/outranked-seats.ts';
import { Reconcile } from '../../server/director/reconcile.ts';
import type { HostName } from '../../server/director/seat-view.ts';
import { createLogger } from '../../server/log.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { knownCell, newHostId } from '../support/director.ts';
import { ReserveCell } from './support/reserve-cell.ts';
import { ReserveDirector } from './support/reserve-director.ts';

/** Seats that their rows have left behind: found by the ledger or the reconcile, and demoted (P2, reserve-mode 1.5). */

interface Behind {
  director: ReserveDirector;
  ledger: Ledger;
  reconcile: Reconcile;
}

let database: FreshDatabase;
let db: Database;
let x: ReserveCell;
let y: ReserveCell;
let host: HostName;
let running: Behind[];
const log = createLogger({ role: 'director', level: 'silent' });

beforeAll(async () => {
  database = await freshDatabase();
  await Promise.all(['X', 'Y'].map((id) => knownCell(database, id)));
  db = openDatabase({ url: database.urlFor('relay_director'), applicationName: 'test', poolMax: 4, log });
});
afterAll(async () => {
  await db?.close();
  await database?.drop();
});
beforeEach(() => {
  [x, y] = [new ReserveCell('X'), new ReserveCell('Y')];
  host = { userId: 'user-1', relayHostId: newHostId() };
  running = [];
});
afterEach(async () => {
  for (const { ledger, reconcile } of running) {
    reconcile.stop();
    await ledger.stop();
  }
});

/** A director with its ledger, that has the seats which it booked itself recorded. */
function direct(cells: ReserveCell[], directorId: string): Behind {
  const director = new ReserveDirector(cells, { directorId, random: () => 0 });
  const { clock, demotions, map: seats, memory, metrics } = director;
  const ledger: Ledger = new Ledger({
    clock,
    log,
    metrics,
    record: (rows, timeoutMs) => db.call('record_seats', { rows }, { timeoutMs }),
    onStale: whenRowIsAhead({ clock, demotions, ledger: () => ledger, memory, seats }),
  });
  const reconcile = new Reconcile({ clock, fleet: director.fleet(), ledger, random: () => 0.5, seats });
  seats.onPage((cellId, { joins }) => {
    reconcile.read(cellId);
    for (const join of joins) if (join.reservedBy === directorId) ledger.add(join, { cellId, epoch: join.epoch });
  });
  seats.onCell(({ type, cellId }) => {
    if (type === 'gap') reconcile.gap(cellId);
  });
  const behind = { director, ledger, reconcile };
  running.push(behind);
  return behind;
}

async function rowOf({ relayHostId }: HostName) {
  const [row] = await database.query('select cell_id, epoch from relay.assignment where relay_host_id = $1', [
    relayHostId,
  ]);
  return row ?? null;
}

/** Turns a director's clock by `ms`, in steps that let Postgres and the cells answer. */
async function pass({ director }: Behind, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 50) {
    director.pass(50);
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
}

/** Until all that waits for the ledger was answered. */
async function flushed(behind: Behind): Promise<void> {
  await until(
    'flushed',
    async () => {
      await pass(behind, 50);
      return behind.ledger.waiting;
    },
    (waiting) => waiting === 0,
  );
}

describe('two directors book one epoch on two cells (P2)', () => {
  test('the first row wins, and the other seat is demoted within 2 s of its own write', async () => {
    const first = direct([x], 'first');
    const second = direct([y], 'second');
    first.director.warm();
    second.director.warm();
    expect(await first.director.ask(host)).toMatchObject({ seat: { cellId: 'X', epoch: 1 } });
    expect(await second.director.ask(host)).toMatchObject({ seat: { cellId: 'Y', epoch: 1 } });
    x.join(host, 1);
    first.director.poll();
    await flushed(first);
    y.join(host, 1);
    second.director.poll();
    await pass(second, 2_000);
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 1 });
    expect(y.demoted).toMatchObject([{ ...host, epoch: 1 }]);
    expect(x.demoted).toEqual([]);
    expect(second.director.memory.facts(host)).toMatchObject({ floor: 1, rejoin: null });
  });

  test('a demoted host is booked above its row', async () => {
    x.row = { ...x.row, admission: 'migration-only' };
    const second = direct([x, y], 'second');
    second.director.warm();
    await db.call('record_seats', {
      rows: [{ user_id: host.userId, relay_host_id: host.relayHostId, cell_id: 'X', epoch: 5 }],
    });
    expect(await second.director.ask(host)).toMatchObject({ seat: { epoch: 1 } });
    y.join(host, 1);
    second.director.poll();
    await pass(second, 2_000);
    expect(y.demoted).toHaveLength(1);
    second.director.poll();
    expect(await second.director.ask(host)).toMatchObject({ seat: { cellId: 'Y', epoch: 6 } });
  });

  test('a cell that does not answer is told once it does, and by what holds then', async () => {
    const second = direct([y], 'second');
    second.director.warm();
    const row = { user_id: host.userId, relay_host_id: host.relayHostId, cell_id: 'X', epoch: 1 };
    await db.call('record_seats', { rows: [row] });
    expect(await second.director.ask(host)).toMatchObject({ seat: { epoch: 1 } });
    y.join(host, 1);
    second.director.poll();
    y.down = true;
    await pass(second, 3_000);
    expect(y.demoted).toEqual([]);
    y.down = false;
    await pass(second, 3_000);
    expect(y.demoted).toHaveLength(1);
    expect(second.ledger.waiting).toBe(0);
  });
});

describe('the reconcile', () => {
  const row = (cellId: string, epoch: number) => ({
    user_id: host.userId,
    relay_host_id: host.relayHostId,
    cell_id: cellId,
    epoch,
  });

  test('at boot it waits for the whole map, and records seats of 30 s; younger ones a minute later', async () => {
    x.join(host, 4);
    x.clock.advance(30_000);
    const young = { userId: 'user-1', relayHostId: newHostId() };
    x.join(young, 1);
    const behind = direct([x, y], 'director-1');
    behind.director.clock.advance(30_000);
    y.clock.advance(30_000);
    behind.reconcile.start();
    behind.director.poll([x]);
    behind.director.clock.advance(5_000);
    expect(behind.ledger.waiting).toBe(0);
    behind.director.poll([y]);
    behind.director.clock.advance(1_000);
    expect(behind.ledger.waiting).toBe(1);
    await flushed(behind);
    expect([await rowOf(host), await rowOf(young)]).toEqual([{ cell_id: 'X', epoch: 4 }, null]);
    behind.director.pass(50_000);
    // another socket in the same seat
    x.join(young, 1);
    behind.director.pass(11_000);
    await flushed(behind);
    expect(await rowOf(young)).toEqual({ cell_id: 'X', epoch: 1 });
  });

  test('does not wait for ever for a cell that never tells its seats', async () => {
    x.join(host, 4);
    y.down = true;
    const behind = direct([x, y], 'director-1');
    behind.reconcile.start();
    behind.director.poll();
    behind.director.pass(29_000);
    expect(behind.ledger.waiting).toBe(0);
    behind.director.pass(2_000);
    await flushed(behind);
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 4 });
  });

  test('every 10 min and a little more, also what its row has left behind: demoted, and its floor raised', async () => {
    x.join(host, 4);
    const behind = direct([x, y], 'director-1');
    behind.director.warm();
    behind.reconcile.start();
    behind.director.pass(62_000);
    await flushed(behind);
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 4 });
    await db.call('record_seats', { rows: [row('Y', 9)] });
    behind.director.pass(560_000);
    expect(behind.ledger.waiting).toBe(0);
    behind.director.pass(80_000);
    await flushed(behind);
    await pass(behind, 200);
    expect(x.demoted).toMatchObject([{ ...host, epoch: 4 }]);
    expect(behind.director.memory.facts(host).floor).toBe(9);
  });

  test('leaves a seat alone whose row is ahead on its own cell', async () => {
    x.join(host, 4);
    const behind = direct([x, y], 'director-1');
    behind.director.warm();
    await db.call('record_seats', { rows: [row('X', 5)] });
    behind.reconcile.start();
    behind.director.pass(62_000);
    await flushed(behind);
    await pass(behind, 200);
    expect(x.demoted).toEqual([]);
    expect(behind.director.memory.facts(host).floor).toBe(5);
  });

  test('after a gap in a feed at once: who booked those seats is not known', async () => {
    const behind = direct([x, y], 'director-1');
    behind.director.warm();
    behind.reconcile.start();
    behind.director.pass(1_000);
    for (let n = 0; n < 20_001; n++) x.reserve(host, 1, 'director-1');
    x.join(host, 4);
    behind.director.poll();
    await flushed(behind);
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 4 });
  });

  test('as a cell leaves reserve mode at once: without a row its hosts get no lease (90)', async () => {
    const behind = direct([x, y], 'director-1');
    behind.director.warm();
    behind.reconcile.start();
    behind.director.pass(62_000);
    x.join(host, 4, { reservedBy: 'a director that is gone' });
    behind.director.pass(10_000);
    expect(behind.ledger.waiting).toBe(0);
    x.mode = 'db';
    behind.director.poll();
    await flushed(behind);
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 4 });
  });

  test('passes over cells in db mode: their rows come first', async () => {
    x.mode = 'db';
    x.row = { ...x.row, admit_mode: 'db' };
    x.join(host, 4);
    const behind = direct([x, y], 'director-1');
    behind.director.warm();
    behind.reconcile.start();
    behind.director.pass(62_000);
    expect(behind.ledger.waiting).toBe(0);
  });
});
