import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { readConfig } from '../../server/config.ts';
import { type Database, openDatabase } from '../../server/database.ts';
import { type Desk, openDesk } from '../../server/director/desk.ts';
import { EpochBase } from '../../server/director/epoch-base.ts';
import { findPlace } from '../../server/director/find-place.ts';
import { createReadRow } from '../../server/director/reserve.ts';
import type { HostName } from '../../server/director/seat-view.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics } from '../../server/metrics.ts';
import type { RequestedBy } from '../../server/sql-interface.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { type KnownCell, knownCell, newHostId, SIGNING_KEY } from '../support/director.ts';
import { ReserveCell } from './support/reserve-cell.ts';
import { ReserveDirector } from './support/reserve-director.ts';

/** What a director says to Postgres of a host's epochs, and what comes of it (03; V3, V4, 89, O22, O25). */

let database: FreshDatabase;
let db: Database;
let cells: KnownCell[];
let x: ReserveCell;
let z: ReserveCell;
let director: ReserveDirector;
let desk: Desk;
let host: HostName;
const log = createLogger({ role: 'director', level: 'silent' });

beforeAll(async () => {
  database = await freshDatabase();
  cells = await Promise.all(['X', 'Z'].map((id) => knownCell(database, id)));
  db = openDatabase({ url: database.urlFor('relay_director'), applicationName: 'test', poolMax: 3, log });
});
afterAll(async () => {
  await db?.close();
  await database?.drop();
});

beforeEach(async () => {
  await database.query(`update relay.cell set admit_mode = 'db', admission = 'general'`);
  for (const cell of cells) await cell.beat();
  host = { userId: 'user-1', relayHostId: newHostId() };
  x = new ReserveCell('X', { admit_mode: 'db' });
  z = new ReserveCell('Z', { admit_mode: 'db' });
  x.mode = 'db';
  z.mode = 'db';
  start();
});

function start(mode: 'off' | 'dry-run' | 'on' = 'on'): void {
  director = new ReserveDirector([x, z], { mode, random: () => 0 }).warm();
  desk = deskOf(director);
}

function deskOf({ clock, memory }: ReserveDirector, through = db): Desk {
  const config = readConfig({
    ORCA_RELAY_ROLE: 'director',
    ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: SIGNING_KEY,
    DATABASE_URL: database.urlFor('relay_director'),
  });
  const unused = () => {
    throw new Error('a desk has no part in this');
  };
  const context = {
    clock,
    peerTime: clock,
    config,
    db: through,
    log,
    metrics: createMetrics(),
    origin: unused,
    leave: unused,
  };
  return openDesk(context, { memory, judge: (cellId) => director.verdicts.of(cellId) });
}

async function rowIs(cellId: string, epoch: number): Promise<void> {
  await database.query(
    `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
     values ($1, $2, $3, $4, relay.now())`,
    [host.userId, host.relayHostId, cellId, epoch],
  );
}

async function row() {
  const [found] = await database.query('select cell_id, epoch from relay.assignment where relay_host_id = $1', [
    host.relayHostId,
  ]);
  return found;
}

const ask = () => findPlace(desk, director.assign, { host, region: null, signal: new AbortController().signal });
const assign = (requested_by: RequestedBy, place = true) =>
  desk.assign({ user_id: host.userId, relay_host_id: host.relayHostId, requested_by, place });
const granted = (cellId: string, epoch: number) => ({ granted: { seat: { cellId, epoch } } });

describe('the floor of a host', () => {
  test('V3 row (X,4), X live, floor 6: the host is granted at 7; a phone hears that the row is behind', async () => {
    await rowIs('X', 4);
    director.map.raiseFloor(host, 6);
    for (const caller of ['resolve', 'invite'] as const) {
      expect(await assign(caller)).toMatchObject({ outcome: 'unavailable', cause: 'behind', rule: 'behind' });
    }
    expect(await ask()).toMatchObject(granted('X', 7));
    expect(await row()).toEqual({ cell_id: 'X', epoch: 7 });
    expect(await assign('resolve')).toMatchObject({ outcome: 'granted', epoch: 7 });
  });

  test('V3 a seat (Z,6) on the map: decided as if the row said so, whoever asks', async () => {
    await rowIs('X', 4);
    z.join(host, 6);
    director.poll();
    expect(await assign('resolve')).toMatchObject({ outcome: 'granted', cell_id: 'Z', epoch: 6 });
    expect(await row()).toEqual({ cell_id: 'Z', epoch: 6 });
    expect(await ask()).toMatchObject(granted('Z', 6));
  });

  test('O22 survives the seat: what the map no longer shows still counts', async () => {
    await rowIs('X', 4);
    z.join(host, 6);
    director.poll();
    z.down = true;
    director.pass(61_000);
    expect(director.map.seats(host)).toEqual([]);
    const decision = await ask();
    expect(decision).toMatchObject({ granted: { seat: { epoch: 7 } } });
  });

  test('a grant raises it: the next epoch lies above what Postgres gave', async () => {
    expect(await ask()).toMatchObject({ granted: { seat: { epoch: 1 } } });
    expect(director.memory.hints(host).epoch_floor).toBe(1);
    expect(director.pending.of(host)).toMatchObject({ epoch: 1, source: 'own' });
  });

  test('a grant that keeps a host where the map shows it is no pending move', async () => {
    await rowIs('X', 4);
    x.join(host, 4);
    director.poll();
    expect(await ask()).toMatchObject(granted('X', 4));
    expect(director.pending.of(host)).toBeNull();
  });
});

describe('without a floor', () => {
  beforeEach(() => database.query(`update relay.cell set admit_mode = 'reserve' where cell_id = 'Z'`));

  test('V4 a map that has not heard every cell gives none: row + 1000 while a cell is in reserve mode', async () => {
    z.down = true;
    director = new ReserveDirector([x, z]);
    director.poll([x]);
    desk = deskOf(director);
    expect(await assign('host')).toMatchObject({ outcome: 'granted', epoch: 1_000 });
    expect(await assign('resolve')).toMatchObject({ outcome: 'granted', epoch: 1_000 });
  });

  test.each(['off', 'dry-run'] as const)('V4 a director whose placement is %s gives none either', async (mode) => {
    start(mode);
    expect(await ask()).toMatchObject({ granted: { seat: { epoch: 1_000 } } });
  });

  test('with a complete map the step is one', async () => {
    expect(await assign('host')).toMatchObject({ outcome: 'granted', epoch: 1 });
  });
});

describe('two directors', () => {
  test('O25 one lost the feed: what it mints lies above the row, and the other hears of it', async () => {
    await rowIs('X', 4);
    const blind = new ReserveDirector([x, z], { random: () => 0 });
    const blindDesk = deskOf(blind);
    director.map.raiseFloor(host, 9);
    expect(await ask()).toMatchObject(granted('X', 10));
    expect(
      await blindDesk.assign({
        user_id: host.userId,
        relay_host_id: host.relayHostId,
        requested_by: 'host',
        place: true,
      }),
    ).toMatchObject({ outcome: 'granted', epoch: 10 });
    expect(blind.memory.facts(host).floor).toBe(10);
  });

  test('a reply lost after its commit: the next ask is given the same place, and nothing is minted again (P1)', async () => {
    const first = (await db.call('assign', {
      user_id: host.userId,
      relay_host_id: host.relayHostId,
      ...director.memory.hints(host),
    })) as { cell_id: string; epoch: number };
    expect(await ask()).toMatchObject(granted(first.cell_id, first.epoch));
  });
});

describe('a call of the database that was given up (P1)', () => {
  test('may have minted one epoch: the next one lies above it', async () => {
    await rowIs('X', 4);
    director.map.raiseFloor(host, 6);
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    await holder.query('begin');
    await holder.query('select 1 from relay.assignment where relay_host_id = $1 for update', [host.relayHostId]);
    const url = database.urlFor('relay_director');
    const hasty = openDatabase({ url, applicationName: 'hasty', poolMax: 1, log, statementTimeoutMs: 100 });
    const { userId, relayHostId } = host;
    const asked = { user_id: userId, relay_host_id: relayHostId, requested_by: 'host' } as const;
    await expect(deskOf(director, hasty).assign({ ...asked, place: true })).rejects.toMatchObject({ kind: 'timeout' });
    await holder.query('rollback');
    await holder.end();
    await hasty.close();
    expect(director.memory.facts(host).floor).toBe(7);
    expect(await ask()).toMatchObject(granted('X', 8));
  });
});

describe('a host of a cell in db mode (04)', () => {
  beforeEach(async () => {
    await database.query(`update relay.cell set admit_mode = 'reserve' where cell_id = 'Z'`);
    z.mode = 'reserve';
    z.row = { ...z.row, admit_mode: 'reserve' };
    start();
  });

  test('is kept by the database, without a booking', async () => {
    await rowIs('X', 4);
    x.join(host, 4);
    director.poll();
    expect(await ask()).toMatchObject(granted('X', 4));
    expect(z.asked).toEqual([]);
  });

  test('is booked above its floor where the database would move it, and the row waits for the ledger', async () => {
    await rowIs('X', 4);
    x.join(host, 4);
    director.poll();
    // stranded: its cell is being emptied, and it was granted its seat and never came
    await database.query(`update relay.cell set admission = 'existing-only' where cell_id = 'X'`);
    await database.query(
      `update relay.assignment set unattached_since = relay.now() - interval '2 min' where relay_host_id = $1`,
      [host.relayHostId],
    );
    const decision = ask();
    for (let ms = 0; ms < 2_000 && z.asked.length === 0; ms += 5) {
      director.clock.advance(5);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(await decision).toMatchObject({ granted: { rule: 'reserve-booked', seat: { cellId: 'Z', epoch: 5 } } });
    expect(await row()).toEqual({ cell_id: 'X', epoch: 4 });
  });
});

describe('V1 bookings after a failover that lost commits (P1)', () => {
  let base: EpochBase;
  beforeEach(async () => {
    await database.query(`update relay.cell set admit_mode = 'reserve'`);
    for (const cell of [x, z]) Object.assign(cell, { mode: 'reserve', row: { ...cell.row, admit_mode: 'reserve' } });
    director = new ReserveDirector([x, z], { random: () => 0, readRow: (...asked) => readRow(...asked) }).warm();
    desk = deskOf(director);
    base = new EpochBase({ db, memory: director.memory });
    const readRow = createReadRow({ base, clock: director.clock, db, desk });
    await database.query('update relay.setting set epoch_base = 1009');
  });
  afterEach(() => database.query('update relay.setting set epoch_base = 0, timeline = relay.timeline()'));

  /** Time passes while the cells are asked. */
  async function askAnswered() {
    let over = false;
    const decision = ask().finally(() => {
      over = true;
    });
    for (let turns = 0; turns < 400 && !over; turns++) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      director.clock.advance(5);
    }
    return decision;
  }
  const epochOf = async () => (await askAnswered()) as { granted: { rule: string; seat: { epoch: number } } };

  test('a host whose row trails what it was granted, and one whose row is gone: above the base', async () => {
    await rowIs('X', 4);
    expect(await epochOf()).toMatchObject({ granted: { rule: 'reserve-booked', seat: { epoch: 1_010 } } });
    host = { userId: 'user-1', relayHostId: newHostId() };
    expect(await epochOf()).toMatchObject({ granted: { rule: 'reserve-booked', seat: { epoch: 1_010 } } });
  });

  test('a host that the map knows is kept at its old epoch, and booked elsewhere above the base', async () => {
    x.join(host, 4);
    director.poll();
    await base.refresh();
    expect(await epochOf()).toMatchObject({ granted: { rule: 'reserve-memory', seat: { cellId: 'X', epoch: 4 } } });
    x.draining = true;
    director.poll();
    expect(await epochOf()).toMatchObject({ granted: { rule: 'reserve-booked', seat: { cellId: 'Z', epoch: 1_010 } } });
  });

  test('is read again when changes may have been missed, and until it can be had', async () => {
    await base.refresh();
    await database.query('update relay.setting set epoch_base = 2000, timeline = timeline + 1');
    base.want();
    await base.refresh();
    expect(director.memory.mintFloor({ floor: 4 })).toBe(1_009);
    await database.query('update relay.setting set timeline = relay.timeline()');
    await base.refresh();
    expect(director.memory.mintFloor({ floor: 4 })).toBe(2_000);
  });

  test('before a heartbeat has raised it nobody is booked by a row: 2 s', async () => {
    await rowIs('X', 4);
    await database.query('update relay.setting set timeline = timeline + 1');
    expect(await askAnswered()).toMatchObject({ refusal: { reason: 'reserve-database', retryAfterMs: 2_000 } });
    expect([...x.asked, ...z.asked]).toEqual([]);
  });

  test('an answer that was lost is not minted again by a booking', async () => {
    await base.refresh();
    director.memory.perhapsGranted(host, { epoch_floor: 0, seen: null });
    expect(director.memory.mintFloor(director.memory.facts(host))).toBe(1_010);
  });
});
