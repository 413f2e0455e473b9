import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type ChangeStream, type ChangeStreamOptions, openChangeStream } from '../../server/change-stream.ts';
import { type Clock, systemClock } from '../../server/clock.ts';
import { type Database, openDatabase } from '../../server/database.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics, type Metrics } from '../../server/metrics.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

const log = createLogger({ role: 'director', level: 'silent' });
const DOORBELL = /doorbell/;
/** Longer than any test: what arrives, a doorbell brought. */
const NEVER_MS = 600_000;

let database: FreshDatabase;
let proxy: TcpProxy;
let db: Database;
let metrics: Metrics;
let stream: ChangeStream | undefined;
let heard: number[];
let resyncs: string[];

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await startProxy(database.url);
});
afterAll(async () => {
  await proxy.stop();
  await database.drop();
});
beforeEach(() => {
  proxy.open();
  metrics = createMetrics();
  heard = [];
  resyncs = [];
  db = openDatabase({
    url: proxy.through(database.urlFor('relay_director')),
    applicationName: 'orca-relay/director/test',
    poolMax: 3,
    log,
  });
});
afterEach(async () => {
  await stream?.stop();
  stream = undefined;
  await db.close();
});

async function start(overrides: Partial<ChangeStreamOptions> = {}): Promise<ChangeStream> {
  stream = openChangeStream({
    databaseUrl: proxy.through(database.urlFor('relay_director')),
    db,
    pollMs: 40,
    onChange: ({ id }) => {
      heard.push(id);
    },
    onResync: (reason) => {
      resyncs.push(reason);
    },
    log,
    metrics,
    ...overrides,
  });
  await stream.ready;
  return stream;
}

/** A change as a move writes it: nobody rings. */
async function change(cell = 'us-1', query: FreshDatabase['query'] = database.query): Promise<number> {
  const rows = await query<{ id: number }>(
    "insert into relay.change (kind, to_cell, at) values ('placed', $1, relay.now()) returning id",
    [cell],
  );
  return Number(rows[0]?.id);
}

const ring = () => database.query("select relay.ring('admission', 'us-1', null, relay.now())");
const lastId = async () => Number((await database.query('select max(id) as id from relay.change'))[0]?.id);
const hearing = (bell: ChangeStream) => eventually(() => expect(bell.doorbell()).toBe('hearing'));
const metric = async (name: string) => (await metrics.registry.getSingleMetricAsString(name)).split('\n');

/** The machine's clock, only faster, so that a check due in 5 s comes in a quarter of one. */
const HASTE = 20;
const hurried: Clock = {
  ...systemClock,
  now: () => systemClock.now() * HASTE,
  setTimeout: (callback, ms) => systemClock.setTimeout(callback, ms / HASTE),
};

describe('the change stream', () => {
  test('starts at the head, and brings what follows, each once and in order', async () => {
    const before = await change();
    await start();
    expect(resyncs).toEqual(['start']);
    const made = [await change(), await change(), await change()];
    await eventually(() => expect(heard).toEqual(made));
    expect(heard).not.toContain(before);
  });

  test('brings many pages at once', async () => {
    await start({ pollMs: NEVER_MS });
    await database.query(
      "insert into relay.change (kind, to_cell, at) select 'placed', 'us-1', relay.now() from generate_series(1, 1800)",
    );
    await hearing(stream as ChangeStream);
    await ring();
    await eventually(() => expect(heard.length).toBe(1_801));
    expect(new Set(heard).size).toBe(1_801);
  });

  test('brings a cell only what concerns it', async () => {
    await start({ cellId: 'us-2' });
    await change('us-1');
    const mine = await change('us-2');
    await change('us-1');
    await eventually(() => expect(heard).toEqual([mine]));
    await change('us-3');
    const second = await change('us-2');
    await eventually(() => expect(heard).toEqual([mine, second]));
  });

  test('brings a change whose transaction was late, once', async () => {
    await start();
    const late = new pg.Client({ connectionString: database.url });
    await late.connect();
    try {
      await late.query('begin');
      const id = await change(
        'us-1',
        async (text, values) => (await late.query(text, values as unknown[])).rows as never,
      );
      const next = await change();
      await eventually(() => expect(heard).toEqual([next]));
      await late.query('commit');
      await eventually(() => expect(heard).toEqual([next, id]));
      const last = await change();
      await eventually(() => expect(heard).toEqual([next, id, last]));
    } finally {
      await late.end();
    }
  });

  test('gives up the id of a transaction that was rolled back, after 60 s, and counts it', async () => {
    let shift = 0;
    await start({ clock: { ...systemClock, now: () => systemClock.now() + shift } });
    await database.query("select nextval(pg_get_serial_sequence('relay.change', 'id'))");
    const next = await change();
    await eventually(() => expect(heard).toEqual([next]));
    await eventually(async () => expect(await metric('orca_relay_change_gaps')).toContain(gauge(1)));
    shift = 60_000;
    await eventually(async () => {
      expect(await metric('orca_relay_change_gaps')).toContain(gauge(0));
      expect(await metric('orca_relay_change_gaps_dropped_total')).toContain(
        'orca_relay_change_gaps_dropped_total{reader="director"} 1',
      );
    });
  });
  const gauge = (value: number) => `orca_relay_change_gaps{reader="director"} ${value}`;

  test('passes over a change that its reader cannot digest', async () => {
    const bad = (await lastId()) + 1;
    await start({
      onChange: ({ id }) => {
        if (id === bad) throw new Error('cannot');
        heard.push(id);
      },
    });
    expect(await change()).toBe(bad);
    const good = await change();
    await eventually(() => expect(heard).toEqual([good]));
  });

  test('asks for a resync again until it worked, and brings nothing before that', async () => {
    let working = false;
    stream = openChangeStream({
      databaseUrl: proxy.through(database.urlFor('relay_director')),
      db,
      pollMs: 20,
      onChange: ({ id }) => {
        heard.push(id);
      },
      onResync: (reason) => {
        resyncs.push(reason);
        if (!working) throw new Error('database away');
      },
      log,
      metrics,
      clock: hurried,
    });
    await eventually(() => expect(resyncs.length).toBeGreaterThan(2));
    expect(heard).toEqual([]);
    working = true;
    await stream.ready;
    expect(new Set(resyncs)).toEqual(new Set(['start']));
  });

  test('resyncs when what it has not read was pruned', async () => {
    await start();
    await eventually(() => expect(stream?.doorbell()).toBe('hearing'));
    proxy.refuse();
    const unread = await change();
    await database.query('with gone as (delete from relay.change) update relay.setting set changes_pruned_to = $1', [
      unread,
    ]);
    proxy.open();
    await eventually(() => expect(resyncs).toEqual(['start', 'pruned']));
    const next = await change();
    await eventually(() => expect(heard).toEqual([next]));
  });
});

describe('the doorbell', () => {
  test('tests itself, and brings a change long before the poll', async () => {
    const bell = await start({ pollMs: NEVER_MS });
    await hearing(bell);
    await ring();
    const id = await lastId();
    await eventually(() => expect(heard).toEqual([id]));
    expect(await metric('orca_relay_doorbell_state')).toContain(
      'orca_relay_doorbell_state{reader="director",state="hearing"} 1',
    );
  });

  test('is hung up anew when its backend is killed (incident 6)', async () => {
    const bell = await start({ pollMs: NEVER_MS });
    await hearing(bell);
    await database.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name like '%doorbell%' and datname = current_database()",
    );
    await eventually(() => expect(bell.doorbell()).not.toBe('hearing'));
    await ring();
    const lost = await lastId();
    await hearing(bell);
    await eventually(() => expect(heard).toEqual([lost]));
    await ring();
    await eventually(() => expect(heard.length).toBe(2));
  });

  test('that sits in a black hole costs a poll at most, and is noticed within seconds (incident 7)', async () => {
    const bell = await start({ clock: hurried });
    await hearing(bell);
    expect(proxy.swallow(DOORBELL)).toBe(1);
    const made: number[] = [];
    for (let i = 0; i < 5; i += 1) {
      await ring();
      made.push(await lastId());
    }
    await eventually(() => expect(heard).toEqual(made));
    await eventually(() => expect(bell.doorbell()).not.toBe('hearing'));
    await hearing(bell);
    expect(heard).toEqual(made);
  });

  test('says so when LISTEN works and nothing arrives; polling carries on (incident 8)', async () => {
    proxy.deafen();
    const bell = await start({ clock: hurried });
    await eventually(() => expect(bell.doorbell()).toBe('deaf'));
    expect(await metric('orca_relay_doorbell_state')).toContain(
      'orca_relay_doorbell_state{reader="director",state="deaf"} 1',
    );
    await ring();
    const id = await lastId();
    await eventually(() => expect(heard).toEqual([id]));
    // The pooler is replaced by one that passes notifications on.
    proxy.open();
    await eventually(() => expect(bell.doorbell()).toBe('hearing'));
  });

  test('does not keep a process that stops, in the middle of dialling either', async () => {
    const bell = await start();
    await hearing(bell);
    proxy.refuse();
    await eventually(() => expect(bell.doorbell()).toBe('waiting'));
    const startedAt = performance.now();
    await bell.stop();
    expect(performance.now() - startedAt).toBeLessThan(3_500);
    proxy.open();
    expect(bell.doorbell()).toBe('stopped');
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(proxy.names().filter((name) => DOORBELL.test(name))).toEqual([]);
  });

  test('stops at once in a black hole', async () => {
    const bell = await start();
    await hearing(bell);
    proxy.swallow(DOORBELL);
    const startedAt = performance.now();
    await bell.stop();
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });
});

describe('the database away', () => {
  test('and back: what was written meanwhile arrives, once', async () => {
    const bell = await start({ clock: hurried });
    await hearing(bell);
    const first = await change();
    await eventually(() => expect(heard).toEqual([first]));
    proxy.refuse();
    const meanwhile = [await change(), await change()];
    await eventually(() => expect(bell.doorbell()).toBe('waiting'));
    proxy.open();
    await eventually(() => expect(heard).toEqual([first, ...meanwhile]));
    await hearing(bell);
    expect(resyncs).toEqual(['start']);
  });

  test('from the start: ready once it answers', async () => {
    proxy.refuse();
    let ready = false;
    const starting = start({ clock: hurried }).then((opened) => {
      ready = true;
      return opened;
    });
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(ready).toBe(false);
    proxy.open();
    await starting;
    const id = await change();
    await eventually(() => expect(heard).toEqual([id]));
  });
});
