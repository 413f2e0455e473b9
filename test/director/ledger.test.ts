import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Database, DatabaseError, openDatabase } from '../../server/database.ts';
import type { KnownSeat } from '../../server/director/known-rows.ts';
import { Ledger, type RecordSeats } from '../../server/director/ledger.ts';
import type { HostName } from '../../server/director/seat-view.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics, type Metrics } from '../../server/metrics.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { knownCell, newHostId } from '../support/director.ts';
import { HandClock } from '../support/hand-clock.ts';

/** Reserve mode 1.5, against Postgres: the rows of hosts follow their seats. */

let database: FreshDatabase;
let db: Database;
let clock: HandClock;
let metrics: Metrics;
let ledger: Ledger;
let batches: number[];
let stale: { host: HostName; seat: KnownSeat; row: KnownSeat }[];
let record: RecordSeats;

beforeAll(async () => {
  database = await freshDatabase();
  await Promise.all(['X', 'Y'].map((id) => knownCell(database, id)));
  db = openDatabase({
    url: database.urlFor('relay_director'),
    applicationName: 'test',
    poolMax: 2,
    log: createLogger({ role: 'director', level: 'silent' }),
  });
});
afterAll(async () => {
  await db?.close();
  await database?.drop();
});

beforeEach(() => {
  clock = new HandClock();
  metrics = createMetrics();
  batches = [];
  stale = [];
  record = (rows, timeoutMs) => db.call('record_seats', { rows }, { timeoutMs });
  ledger = new Ledger({
    clock,
    log: createLogger({ role: 'director', level: 'silent' }),
    metrics,
    record: (rows, timeoutMs) => {
      batches.push(rows.length);
      return record(rows, timeoutMs);
    },
    onStale: (host, seat, row) => stale.push({ host, seat: { cellId: seat.cellId, epoch: seat.epoch }, row }),
  });
});
afterEach(() => ledger.stop());

const newHost = (userId = 'user-1'): HostName => ({ userId, relayHostId: newHostId() });

async function rowOf({ userId, relayHostId }: HostName) {
  const [row] = await database.query(
    'select cell_id, epoch from relay.assignment where user_id = $1 and relay_host_id = $2',
    [userId, relayHostId],
  );
  return row ?? null;
}

/** Turns the clock until nothing waits and nothing is under way. */
async function flushed(): Promise<void> {
  await until(
    'flushed',
    async () => {
      clock.advance(250);
      await new Promise((resolve) => setImmediate(resolve));
      return ledger.waiting;
    },
    (waiting) => waiting === 0,
  );
}

const count = async (name: string, labels: Record<string, string>): Promise<number> => {
  const metric = await metrics.registry.getSingleMetric(name)?.get();
  const found = metric?.values.find(({ labels: has }) =>
    Object.entries(labels).every(([key, value]) => has[key] === value),
  );
  return found?.value ?? 0;
};

describe('the ledger', () => {
  test('writes a seat 250 ms after it was taken, and only a higher epoch ever again (P1)', async () => {
    const host = newHost();
    ledger.add(host, { cellId: 'X', epoch: 3 });
    clock.advance(249);
    expect(batches).toEqual([]);
    await flushed();
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 3 });
    ledger.add(host, { cellId: 'Y', epoch: 2 });
    await flushed();
    ledger.add(host, { cellId: 'Y', epoch: 3 });
    await flushed();
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 3 });
    expect(stale).toEqual([
      { host, seat: { cellId: 'Y', epoch: 2 }, row: { cellId: 'X', epoch: 3 } },
      { host, seat: { cellId: 'Y', epoch: 3 }, row: { cellId: 'X', epoch: 3 } },
    ]);
    ledger.add(host, { cellId: 'Y', epoch: 7 });
    await flushed();
    expect(await rowOf(host)).toEqual({ cell_id: 'Y', epoch: 7 });
    expect(await count('orca_relay_reserve_ledger_rows_total', { result: 'recorded' })).toBe(2);
  });

  test('of one epoch that two directors booked the first row wins, and the other seat is named (P2)', async () => {
    const host = newHost();
    await record([{ user_id: host.userId, relay_host_id: host.relayHostId, cell_id: 'Y', epoch: 4 }], 1_000);
    ledger.add(host, { cellId: 'X', epoch: 4 });
    await flushed();
    expect(stale).toEqual([{ host, seat: { cellId: 'X', epoch: 4 }, row: { cellId: 'Y', epoch: 4 } }]);
  });

  test('judges every seat of a host that sits on two cells', async () => {
    const host = newHost();
    ledger.add(host, { cellId: 'Y', epoch: 7 });
    ledger.add(host, { cellId: 'X', epoch: 6 });
    await flushed();
    expect(await rowOf(host)).toEqual({ cell_id: 'Y', epoch: 7 });
    expect(stale).toEqual([{ host, seat: { cellId: 'X', epoch: 6 }, row: { cellId: 'Y', epoch: 7 } }]);
  });

  test('keeps the newest seat of a host on a cell while it waits', async () => {
    const host = newHost();
    for (const epoch of [4, 6, 5]) ledger.add(host, { cellId: 'X', epoch });
    await flushed();
    expect(batches).toEqual([1]);
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 6 });
  });

  test('writes 500 rows a batch, one batch at a time', async () => {
    const hosts = Array.from({ length: 1_100 }, () => newHost());
    for (const host of hosts) ledger.add(host, { cellId: 'X', epoch: 1 });
    let open = 0;
    const inner = record;
    record = async (rows, timeoutMs) => {
      open += 1;
      expect(open).toBe(1);
      return inner(rows, timeoutMs).finally(() => {
        open -= 1;
      });
    };
    await flushed();
    expect(batches).toEqual([500, 500, 100]);
    const [seen] = await database.query(
      `select count(*)::int as rows from relay.assignment where relay_host_id = any($1)`,
      [hosts.map(({ relayHostId }) => relayHostId)],
    );
    expect(seen).toEqual({ rows: 1_100 });
  });

  test('a seat just taken is written before those of the reconcile', async () => {
    const offered = Array.from({ length: 1_200 }, () => newHost());
    for (const host of offered) ledger.add(host, { cellId: 'X', epoch: 1 }, { urgent: false });
    const host = newHost();
    ledger.add(host, { cellId: 'X', epoch: 1 });
    const inner = record;
    const written: string[][] = [];
    record = (rows, timeoutMs) => {
      written.push(rows.map(({ relay_host_id }) => relay_host_id));
      return inner(rows, timeoutMs);
    };
    await flushed();
    expect(written.map((rows) => rows.length)).toEqual([500, 500, 201]);
    expect(written[0]?.[0]).toBe(host.relayHostId);
  });

  test('asks again for a row that somebody holds', async () => {
    const host = newHost();
    ledger.add(host, { cellId: 'X', epoch: 1 });
    await flushed();
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    await holder.query('begin');
    await holder.query('select 1 from relay.assignment where relay_host_id = $1 for update', [host.relayHostId]);
    ledger.add(host, { cellId: 'Y', epoch: 2 });
    const busy = () => count('orca_relay_reserve_ledger_rows_total', { result: 'busy' });
    await until(
      'refused',
      async () => {
        clock.advance(250);
        return busy();
      },
      (refused) => refused > 0,
    );
    await holder.query('commit');
    await holder.end();
    await flushed();
    expect(await rowOf(host)).toEqual({ cell_id: 'Y', epoch: 2 });
  });

  test('a database that is away costs no seat: asked again after 250 ms, 500 ms, … 5 s', async () => {
    const host = newHost();
    const inner = record;
    const asked: number[] = [];
    record = async () => {
      asked.push(clock.now());
      throw new DatabaseError('unavailable', 'gone');
    };
    ledger.add(host, { cellId: 'X', epoch: 1 });
    for (let ms = 0; ms < 30_000; ms += 10) {
      clock.advance(10);
      await new Promise((resolve) => setImmediate(resolve));
    }
    const waits = asked.slice(1).map((at, index) => at - (asked[index] as number));
    expect(waits.slice(0, 6)).toEqual([250, 500, 1_000, 2_000, 4_000, 5_000]);
    record = inner;
    await flushed();
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 1 });
  });

  test('a row that the database will never take is dropped alone, and counted', async () => {
    const bad = newHost('user\0');
    const hosts = Array.from({ length: 20 }, () => newHost());
    for (const host of [...hosts.slice(0, 7), bad, ...hosts.slice(7)]) ledger.add(host, { cellId: 'X', epoch: 1 });
    await flushed();
    for (const host of hosts) expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 1 });
    expect(await count('orca_relay_reserve_ledger_dropped_total', { reason: 'refused' })).toBe(1);
  });

  test('200 000 seats wait at most; the one that waits longest is dropped, and counted', async () => {
    for (let n = 0; n < 200_003; n++) ledger.add({ userId: 'u', relayHostId: `h-${n}` }, { cellId: 'X', epoch: 1 });
    expect(ledger.waiting).toBe(200_000);
    expect(await count('orca_relay_reserve_ledger_dropped_total', { reason: 'overflow' })).toBe(3);
    record = async () => {
      throw new DatabaseError('unavailable', 'gone');
    };
  });

  test('what waits when the director stops is written', async () => {
    const host = newHost();
    ledger.add(host, { cellId: 'X', epoch: 5 });
    await ledger.stop();
    expect(await rowOf(host)).toEqual({ cell_id: 'X', epoch: 5 });
    expect(clock.armed).toBe(0);
  });
});
