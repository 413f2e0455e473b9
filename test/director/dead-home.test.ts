import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { readConfig } from '../../server/config.ts';
import { type Database, openDatabase } from '../../server/database.ts';
import { type Desk, openDesk } from '../../server/director/desk.ts';
import { findPlace } from '../../server/director/find-place.ts';
import type { PollEvidence } from '../../server/director/poll-evidence.ts';
import type { HostName } from '../../server/director/seat-view.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics } from '../../server/metrics.ts';
import type { AssignResult, RequestedBy } from '../../server/sql-interface.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { type KnownCell, knownCell, newHostId, SIGNING_KEY } from '../support/director.ts';
import { ReserveCell } from './support/reserve-cell.ts';
import { ReserveDirector } from './support/reserve-director.ts';

/** What a director asks Postgres for a host whose reserve cell X is silent, and what it says of it (03, dead). */

type Params = { requested_by: RequestedBy; place: boolean; poll_evidence?: PollEvidence };

let database: FreshDatabase;
let db: Database;
let x: KnownCell;
let others: KnownCell[];
let director: ReserveDirector;
let desk: Desk;
let host: HostName;
let lines: Record<string, unknown>[] = [];
/** What was asked of Postgres for a place, and what it answered. */
let calls: { params: Params; result?: AssignResult }[] = [];
/** Runs between the call that wants a verdict and the one that brings it. */
let between: () => Promise<unknown> = async () => undefined;

const OTHERS = ['Y', 'a', 'b', 'c', 'd'];
const log = createLogger({
  role: 'director',
  destination: { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
});
const replaced = () => lines.filter(({ event }) => event === 'orca_relay_dead_reserve_cell_host_replaced');

beforeAll(async () => {
  database = await freshDatabase();
  await database.setClock(Date.UTC(2030, 0, 1));
  x = await knownCell(database, 'X', { hardCap: 600 });
  others = await Promise.all(OTHERS.map((id) => knownCell(database, id, { hardCap: 600 })));
  await database.query(`update relay.cell set admit_mode = 'reserve' where cell_id = 'X'`);
  // where nobody else is moved to
  await database.query(`update relay.cell set admission = 'migration-only' where cell_id not in ('X', 'Y')`);
  db = openDatabase({ url: database.urlFor('relay_director'), applicationName: 'test', poolMax: 3, log });
});
afterAll(async () => {
  await db?.close();
  await database?.drop();
});

beforeEach(async () => {
  await x.beat();
  for (let quarter = 0; quarter < 5; quarter += 1) {
    await Promise.all(others.map((cell) => cell.beat()));
    await database.advanceClock(15_000);
  }
  await Promise.all(others.map((cell) => cell.beat()));
  host = { userId: 'user-1', relayHostId: newHostId() };
  between = async () => undefined;
  start();
  await rowIs(4);
});

/** Whose polls of these cells have failed for a minute. */
function start(...silent: string[]): void {
  open(['X']);
  director.fails(silent, 60_000);
}

/**
 * With these cells in reserve mode, by their rows and their feeds.
 * @param share 0: hosts are booked where that is possible
 */
function open(reserve: string[], share = 0.99): void {
  const cells = ['X', ...OTHERS].map((id) => {
    const region = ['X', 'Y', 'a'].includes(id) ? 'us-central1' : 'asia-east2';
    return new ReserveCell(id, { admit_mode: reserve.includes(id) ? 'reserve' : 'db', region });
  });
  for (const cell of cells) cell.mode = cell.row.admit_mode;
  director = new ReserveDirector(cells, { log, random: () => share }).warm();
  director.row = { row: { cellId: 'X', epoch: 4 } };
  director.fails([], 0);
  desk = deskOf(director);
  lines = [];
  calls = [];
}

function deskOf({ clock, memory, verdicts }: ReserveDirector): Desk {
  const config = readConfig({
    ORCA_RELAY_ROLE: 'director',
    ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: SIGNING_KEY,
    DATABASE_URL: database.urlFor('relay_director'),
  });
  const unused = () => {
    throw new Error('a desk has no part in this');
  };
  const through: Database = {
    ...db,
    call: (async (name: 'assign', params: never, options: never) => {
      if ((params as Params).poll_evidence !== undefined) await between();
      const call: (typeof calls)[number] = { params };
      calls.push(call);
      call.result = await db.call(name, params, options);
      return call.result;
    }) as Database['call'],
  };
  const context = { clock, peerTime: clock, config, db: through, log, metrics: createMetrics(), origin: unused };
  return openDesk({ ...context, leave: unused }, { memory, judge: (cellId) => verdicts.of(cellId) });
}

async function rowIs(epoch: number): Promise<void> {
  await database.query(
    `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
     values ($1, $2, 'X', $3, relay.now())`,
    [host.userId, host.relayHostId, epoch],
  );
}

async function row() {
  const text = 'select cell_id, epoch from relay.assignment where relay_host_id = $1';
  return (await database.query(text, [host.relayHostId]))[0];
}

const ask = () => findPlace(desk, director.assign, { host, region: null, signal: new AbortController().signal });
const unavailable = (cause: string) => ({ refusal: { reason: 'home-unavailable', cause } });
const moved = { granted: { seat: { cellId: 'Y', epoch: 5 }, rule: 'dead-reserve', from: 'X', lane: 'placement' } };
const stays = { cell_id: 'X', epoch: 4 };

describe('a host of a dead cell asks', () => {
  beforeEach(() => start('X'));

  test('18 it is asked for once more, with the evidence; the move is said once, with the counts', async () => {
    expect(await ask()).toMatchObject(moved);
    expect(await row()).toEqual({ cell_id: 'Y', epoch: 5 });
    const asked = calls.map(({ params }) => [params.requested_by, params.place, params.poll_evidence !== undefined]);
    expect(asked).toEqual([
      ['host', false, false],
      ['host', true, false],
      ['host', true, true],
    ]);
    const evidence = calls[2]?.params.poll_evidence;
    expect(evidence).toEqual({
      cell_id: 'X',
      dead: true,
      evaluated_at: calls[1]?.result?.decided_at,
      streak_ms: 60_000,
      polled: 6,
      failing: 1,
      region_polled: 3,
      region_failing: 1,
    });
    expect(replaced()).toEqual([expect.objectContaining({ fromCellId: 'X', toCellId: 'Y', evidence })]);
    expect(JSON.stringify(lines)).not.toContain(host.relayHostId);
  });

  test('28 above the seat that only the map knows, and the ledger does not bring it back', async () => {
    const [cell] = director.cells;
    cell?.join(host, 6);
    director.poll();
    director.fails(['X'], 60_000);
    expect(await ask()).toMatchObject({ granted: { seat: { cellId: 'Y', epoch: 7 }, rule: 'dead-reserve' } });
    for (const epoch of [6, 7]) {
      const rows = [{ user_id: host.userId, relay_host_id: host.relayHostId, cell_id: 'X', epoch }];
      expect(await db.call('record_seats', { rows })).toMatchObject([{ result: 'stale', cell_id: 'Y', epoch: 7 }]);
    }
    expect(await row()).toEqual({ cell_id: 'Y', epoch: 7 });
  });

  test('22 for a phone, an invite, a sweep or an operator nothing is asked twice, and nobody moves', async () => {
    for (const requested_by of ['resolve', 'invite', 'sweep', 'operator'] as const) {
      const asked = { user_id: host.userId, relay_host_id: host.relayHostId, requested_by, place: true };
      expect(await desk.assign(asked)).toMatchObject({ outcome: 'unavailable', cause: 'unheard' });
    }
    expect(calls).toHaveLength(4);
    expect(await row()).toEqual(stays);
  });

  test('34 a move that was rolled back is not said', async () => {
    await database.query(`
      create function refuse() returns trigger language plpgsql as 'begin raise exception ''no''; end';
      create trigger refuse before insert on relay.change for each row when (new.kind = 'moved') execute function refuse()`);
    try {
      expect(await ask()).toMatchObject({ refusal: { reason: 'database' } });
      expect(calls[2]?.params.poll_evidence).toBeDefined();
    } finally {
      await database.query('drop function refuse cascade');
    }
    expect([await row(), replaced()]).toEqual([stays, []]);
  });

  test('its cell is heard between the two calls: it stays', async () => {
    between = () => x.beat();
    expect(await ask()).toMatchObject({ granted: { seat: { cellId: 'X', epoch: 4 }, rule: 'reserve-pin' } });
    expect([await row(), replaced()]).toEqual([stays, []]);
  });

  test('its cell goes back to db mode between the two calls: it waits', async () => {
    between = () => database.query(`update relay.cell set admit_mode = 'db' where cell_id = 'X'`);
    try {
      expect(await ask()).toMatchObject(unavailable('unheard'));
    } finally {
      await database.query(`update relay.cell set admit_mode = 'reserve' where cell_id = 'X'`);
    }
    expect([await row(), replaced()]).toEqual([stays, []]);
  });

  test('evidence that comes later than 5 s is none, and is not brought a second time', async () => {
    between = () => database.advanceClock(5_001);
    expect(await ask()).toMatchObject(unavailable('unheard'));
    expect(calls).toHaveLength(3);
    expect(await row()).toEqual(stays);
  });

  test('32 without a cell that has room it stays where it is, and nothing is said', async () => {
    await database.query(`update relay.cell set admission = 'migration-only' where cell_id = 'Y'`);
    try {
      expect(await ask()).toMatchObject({ refusal: { reason: 'no-capacity' } });
    } finally {
      await database.query(`update relay.cell set admission = 'general' where cell_id = 'Y'`);
    }
    expect([await row(), replaced()]).toEqual([stays, []]);
  });

  test('20, 26 what its heartbeat says counts, whatever the polls say', async () => {
    await x.beat(false);
    expect(await ask()).toMatchObject(unavailable('not_ready'));
    await x.beat();
    expect(await ask()).toMatchObject({ granted: { seat: { cellId: 'X', epoch: 4 }, rule: 'reserve-pin' } });
    expect(calls.every(({ params }) => params.poll_evidence === undefined)).toBe(true);
    expect(await row()).toEqual(stays);
  });
});

describe('its polls do not say dead', () => {
  test('17, 21 that of a director whose polls are answered', async () => {
    expect(await ask()).toMatchObject(unavailable('unheard'));
    expect(calls).toHaveLength(1);
  });

  test.each([
    ['region', ['X', 'a']],
    ['fleet', ['X', 'b', 'c']],
  ])('25 withheld for the %s: it waits, and the verdict is said', async (reason, silent) => {
    start(...silent);
    expect(await ask()).toMatchObject(unavailable('unheard'));
    expect(calls).toHaveLength(1);
    const said = lines.filter(({ event }) => event === 'orca_relay_dead_cell_verdict_withheld');
    expect(said).toEqual([expect.objectContaining({ cellId: 'X', reason, failing: silent.length })]);
    expect(await row()).toEqual(stays);
  });

  test('a director that has just started has no verdict yet', async () => {
    director.fails(['X'], 44_000);
    expect(await ask()).toMatchObject(unavailable('unheard'));
    director.fails(['X'], 2_000);
    expect(await ask()).toMatchObject(moved);
  });
});

describe('its home is not read any more, and another reserve cell of the region is (26, P5)', () => {
  beforeEach(() => open(['X', 'Y'], 0));

  test('the region is silent: it stays, at once and after its seat has expired; a cell of it is booked for nobody', async () => {
    director.cells[0]?.join(host, 4);
    director.poll();
    for (const ms of [5_000, 65_000]) {
      director.fails(['X', 'a'], ms);
      await x.beat();
      expect(await ask()).toMatchObject({ granted: { seat: { cellId: 'X', epoch: 4 }, rule: 'reserve-pin' } });
    }
    expect(director.map.seats(host)).toEqual([]);
    expect(director.cells.flatMap(({ asked }) => asked)).toEqual([]);
    expect(await row()).toEqual(stays);
    director.row = { row: null };
    const fresh = { userId: 'user-1', relayHostId: newHostId() };
    expect(await director.ask(fresh)).toMatchObject({ rule: 'reserve-booked', seat: { cellId: 'Y' } });
  });

  test('it alone is silent: the host is booked elsewhere, as one whose cell restarts', async () => {
    director.cells[0]?.join(host, 4);
    director.poll();
    director.fails(['X'], 5_000);
    expect(await director.ask(host)).toMatchObject({ rule: 'reserve-booked', seat: { cellId: 'Y', epoch: 5 } });
  });
});
