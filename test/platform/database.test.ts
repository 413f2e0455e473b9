import { createServer, type Socket } from 'node:net';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Database, type DatabaseError, openDatabase } from '../../server/database.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics, type Metrics } from '../../server/metrics.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

let fresh: FreshDatabase;
const opened: Database[] = [];
const log = createLogger({ role: 'test', level: 'silent' });

function open(
  options: { url?: string; poolMax?: number; statementTimeoutMs?: number; metrics?: Metrics } = {},
): Database {
  const database = openDatabase({ url: fresh.url, applicationName: 'orca-relay/test', poolMax: 2, log, ...options });
  opened.push(database);
  return database;
}

async function failureOf(work: Promise<unknown>): Promise<DatabaseError> {
  return work.then(
    () => {
      throw new Error('it succeeded');
    },
    (error) => error as DatabaseError,
  );
}

/** Keeps others from an advisory lock while `work` runs. */
async function locked(key: number, work: () => Promise<void>): Promise<void> {
  const holder = new pg.Client({ connectionString: fresh.url });
  await holder.connect();
  try {
    await holder.query('select pg_advisory_lock($1)', [key]);
    await work();
  } finally {
    await holder.end();
  }
}

beforeAll(async () => {
  fresh = await freshDatabase();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((database) => database.close()));
});
afterAll(() => fresh.drop());

describe('values', () => {
  test('int8 is a number, timestamptz epoch milliseconds, jsonb goes both ways', async () => {
    const rows = await open().query(
      "select 9007199254740991 as n, '2026-01-02 03:04:05.678Z'::timestamptz as t, $1::jsonb as j",
      [[{ a: 1 }]],
    );
    expect(rows).toEqual([{ n: 9007199254740991, t: Date.UTC(2026, 0, 2, 3, 4, 5, 678), j: [{ a: 1 }] }]);
  });

  test('a call names its parameters and leaves out what is undefined', async () => {
    const database = open();
    const cell = { cell_id: 'c-call', url: 'https://c.example', region: 'us-central1', capacity_units: 10 };
    expect(await database.call('register_cell', cell)).toBe('ok');
    expect(await database.call('cells', {})).toMatchObject([{ cell_id: 'c-call', admission: 'general', ready: null }]);
    expect(await database.call('changes_since', { cursor: null })).toMatchObject({ resync: 'start' });
  });

  test('two calls of one function that differ in a late parameter alone go over one connection', async () => {
    const database = open({ poolMax: 1 });
    const install = {
      user_id: 'user',
      relay_host_id: 'aaaaaaaaaaaaaaaa',
      cell_id: 'c-none',
      incarnation: '00000000-0000-4000-8000-000000000000',
      req_id: 'req',
      relay_device_id: 'device',
      new_token_hash: 'hash',
      authorization_mode: 'authenticated-direct',
    } as const;
    expect(await database.call('install_credential', install)).toMatchObject({ outcome: 'stale_cell_incarnation' });
    const other = { ...install, direct_auth_id: 'auth' };
    expect(await database.call('install_credential', other)).toMatchObject({ outcome: 'stale_cell_incarnation' });
  });
});

describe('errors have a kind', () => {
  test('a wrong call is misuse', async () => {
    expect(await failureOf(open().query('select nothing from nowhere'))).toMatchObject({
      kind: 'misuse',
      code: '42P01',
      retryable: false,
    });
  });

  test('a lock that is not to be had is busy', async () => {
    await fresh.query('create table contended (id int primary key)');
    await fresh.query('insert into contended values (1)');
    const holder = new pg.Client({ connectionString: fresh.url });
    await holder.connect();
    await holder.query('begin');
    await holder.query('select from contended for update');
    const failure = await failureOf(open().query('select from contended for update nowait'));
    expect(failure).toMatchObject({ kind: 'busy', code: '55P03', retryable: true });
    await holder.end();
  });

  test('a statement that the server gives up is a timeout, and leaves the connection usable', async () => {
    const database = open({ statementTimeoutMs: 100, poolMax: 1 });
    const pid = await database.query('select pg_backend_pid() as pid');
    expect(await failureOf(database.query('select pg_sleep(30)'))).toMatchObject({ kind: 'timeout', code: '57014' });
    expect(await database.query('select pg_backend_pid() as pid')).toEqual(pid);
  });

  test('a call gives up after its own time, and its connection is not used again', async () => {
    const database = open({ poolMax: 1 });
    const [before] = await database.query('select pg_backend_pid() as pid');
    const started = performance.now();
    const failure = await failureOf(database.query('select pg_sleep(30)', [], { timeoutMs: 100 }));
    expect(failure.kind).toBe('timeout');
    expect(performance.now() - started).toBeLessThan(15_000);
    expect((await database.query('select pg_backend_pid() as pid'))[0]).not.toEqual(before);
  });

  test.each([
    ['23505', 'busy'],
    ['40001', 'busy'],
    ['40002', 'busy'],
    ['RL101', 'busy'],
    ['RL103', 'busy'],
    ['58030', 'unavailable'],
    ['RL001', 'misuse'],
    ['23502', 'misuse'],
  ])('%s is %s', async (code, kind) => {
    const raises = `do $$ begin raise exception using errcode = '${code}'; end $$`;
    expect(await failureOf(open().query(raises))).toMatchObject({ kind, code, retryable: kind !== 'misuse' });
  });

  test('no server is unavailable', async () => {
    const nobody = new URL(fresh.url);
    nobody.port = '1';
    expect(await failureOf(open({ url: nobody.href }).query('select 1'))).toMatchObject({
      kind: 'unavailable',
      code: 'ECONNREFUSED',
    });
  });

  test('a server that accepts and says nothing is given up in 2 s', async () => {
    const sockets = new Set<Socket>();
    const hole = createServer((socket) => sockets.add(socket));
    await new Promise<void>((resolve) => hole.listen(0, '127.0.0.1', resolve));
    const url = new URL(fresh.url);
    url.port = String((hole.address() as { port: number }).port);
    const started = performance.now();
    expect((await failureOf(open({ url: url.href }).query('select 1'))).kind).toBe('unavailable');
    expect(performance.now() - started).toBeLessThan(15_000);
    for (const socket of sockets) socket.destroy();
    hole.close();
  });

  test('a wrong password is no reason to try again', async () => {
    const url = new URL(fresh.url);
    url.password = 'wrong';
    expect(await failureOf(open({ url: url.href }).query('select 1'))).toMatchObject({
      code: '28P01',
      retryable: false,
    });
  });
});

describe('the pool', () => {
  test('counts who waits for a connection and how long, and bounds the wait', async () => {
    const database = open({ poolMax: 1 });
    await locked(1, async () => {
      const holding = failureOf(database.query('select pg_advisory_lock_shared(1)'));
      const waiting = failureOf(database.query('select 1', [], { timeoutMs: 60 }));
      expect(await waiting).toMatchObject({ kind: 'busy', retryable: true });
      expect(await holding).toMatchObject({ kind: 'busy', code: '55P03' });
    });
    await database.query('select 1');
    expect(database.waiters()).toBe(0);
    expect(database.oldestWaitMs()).toBe(0);
  });

  test('tells waiters while they wait', async () => {
    const database = open({ poolMax: 1 });
    const calls: Promise<unknown>[] = [];
    await locked(2, async () => {
      calls.push(database.query("select set_config('lock_timeout', '0', false), pg_advisory_lock_shared(2)"));
      calls.push(database.query('select 1'), database.query('select 1'));
      await eventually(() => {
        expect(database.waiters()).toBe(2);
        expect(database.oldestWaitMs()).toBeGreaterThan(15);
      });
    });
    await Promise.all(calls);
  });

  test('keeps the bounds of a session on the server too', async () => {
    const [settings] = await open().query(
      "select current_setting('statement_timeout') s, current_setting('idle_in_transaction_session_timeout') i, current_setting('application_name') a",
    );
    expect(settings).toEqual({ s: '5s', i: '5s', a: 'orca-relay/test' });
  });

  test('closes within its bound while a query runs', async () => {
    const database = open({ statementTimeoutMs: 60_000 });
    const running = failureOf(database.query('select pg_sleep(50)'));
    await database.query('select 1');
    const started = performance.now();
    await database.close();
    expect(performance.now() - started).toBeLessThan(15_000);
    await running;
  });
});

// Incident 35: a rejection that nobody held ended every cell in one failover.
test('every backend killed at once under load: each call fails or succeeds, nothing is unhandled, all goes on', async () => {
  const metrics = createMetrics();
  const database = open({ poolMax: 8, metrics });
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on('unhandledRejection', note);
  process.on('uncaughtException', note);
  const lost = async () =>
    Number(/orca_relay_database_connections_lost_total (\d+)/.exec(await metrics.registry.metrics())?.[1]);
  const kinds = new Set<string>();
  let killing = true;
  const load = Array.from({ length: 200 }, async () => {
    do {
      await database.query('select pg_sleep(0.01)').then(
        () => kinds.add('ok'),
        (error: DatabaseError) => kinds.add(error.kind),
      );
    } while (killing);
  });
  await eventually(() => expect(kinds).toEqual(new Set(['ok'])));
  for (let round = 0; round < 3; round++) {
    await fresh.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'orca-relay/test'",
    );
  }
  await eventually(() => expect(kinds).toContain('unavailable'));
  killing = false;
  await Promise.all(load);
  // Whoever waited too long for one of the new connections was told that.
  expect([...kinds].filter((kind) => kind !== 'busy').sort()).toEqual(['ok', 'unavailable']);
  // A connection that broke while nobody used it may be found out by its next user.
  await eventually(async () => expect(await database.query('select 1 as one')).toEqual([{ one: 1 }]));
  const idle = await eventually(() => database.query('select pg_backend_pid() as pid'));
  const before = await lost();
  await fresh.query('select pg_terminate_backend($1)', [idle[0]?.pid]);
  await eventually(async () => expect(await lost()).toBeGreaterThan(before));
  expect(await database.query('select 1 as one')).toEqual([{ one: 1 }]);
  process.off('unhandledRejection', note);
  process.off('uncaughtException', note);
  expect(unhandled).toEqual([]);
});
