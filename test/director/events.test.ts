import { request } from 'node:http';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { EVENTS, type EventData, type EventName } from '../../contract/events.ts';
import { MAX_READERS } from '../../server/director/event-feed.ts';
import { hostDigest } from '../../server/log.ts';
import type { RunningProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { followsLog, type KnownCell, knownCell, newHostId, startDirector } from '../support/director.ts';
import { type EventReader, type ReadEvent, readEvents } from '../support/event-source.ts';
import { eventually } from '../support/eventually.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

let database: FreshDatabase;
let proxy: TcpProxy;
let director: RunningProcess;
let home: KnownCell;
const readers: EventReader[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await startProxy(database.url);
  home = await knownCell(database, 'us-1');
  director = await startDirector(database, { through: proxy.through });
  await followsLog(director);
});
afterEach(async () => {
  proxy.open();
  for (const reader of readers.splice(0)) reader.close();
  await home.beat();
});
afterAll(async () => {
  await director?.stop();
  await proxy?.stop();
  await database?.drop();
});

interface Told<N extends EventName> {
  id: string | undefined;
  event: N;
  data: EventData<N>;
}

async function watch(lastEventId?: string, origin = director.origin, headers: Record<string, string> = {}) {
  const reader = await readEvents(`${origin}/v1/admin/events`, {
    ...headers,
    ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
  });
  readers.push(reader);
  return reader;
}

const read = (event: ReadEvent): Told<EventName> => {
  const name = event.event as EventName;
  return { id: event.id, event: name, data: EVENTS[name].parse(JSON.parse(event.data)) };
};

/** Reads on to the next event of this name. */
async function next<N extends EventName>(reader: EventReader, name: N): Promise<Told<N>> {
  for (;;) {
    const told = read(await reader.nextEvent());
    if (told.event === name) return told as Told<N>;
  }
}

async function hello(reader: EventReader): Promise<Told<'hello'>> {
  const first = read(await reader.nextEvent());
  expect(first.event).toBe('hello');
  return first as Told<'hello'>;
}

/** Changes as moves write them: nobody rings. */
const WRITE = `insert into relay.change (kind, to_cell, rule, at)
  select 'placed', 'us-1', $2, relay.now() from generate_series(1, $1::int) returning id`;

async function write(count = 1, rule = 'new'): Promise<number[]> {
  return (await database.query<{ id: string }>(WRITE, [count, rule])).map(({ id }) => Number(id));
}

async function changes(reader: EventReader, count: number): Promise<Told<'change'>[]> {
  const told: Told<'change'>[] = [];
  while (told.length < count) told.push(await next(reader, 'change'));
  return told;
}
const idsOf = (told: Told<'change'>[]) => told.map(({ data }) => data.id);
const metric = async (name: string) =>
  (await director.metrics.registry.getSingleMetric(name)?.get())?.values.map(({ labels, value }) => ({
    ...labels,
    value,
  }));

describe('GET /v1/admin/events', () => {
  test('says hello, then each change as it comes, in words; hosts by their digest alone', async () => {
    const reader = await watch();
    expect(reader.headers['content-type']).toBe('text/event-stream');
    expect((await hello(reader)).data).toMatchObject({ resumed: false });
    const host = newHostId();
    await database.query('select outcome from relay_v1.assign($1, $2)', ['user-1', host]);
    const placed = await next(reader, 'change');
    expect(placed.data).toMatchObject({
      kind: 'placed',
      words: 'host placed: first seen',
      host: hostDigest('user-1', host),
      to: 'us-1',
      epoch: 1,
      rule: 'new',
    });
    expect(JSON.stringify(placed)).not.toContain(host);
    expect(JSON.stringify(placed)).not.toContain('user-1');
  });

  test('O18: a lost doorbell costs at most 5 s', async () => {
    const reader = await watch();
    await hello(reader);
    proxy.swallow(/doorbell/);
    const startedAt = performance.now();
    const [id] = await write();
    expect((await next(reader, 'change')).data.id).toBe(id);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  test('comments keep a quiet stream alive', async () => {
    const reader = await watch();
    await eventually(() => expect(reader.comments()).toBeGreaterThan(1));
  });
});

describe('a reader that was cut off', () => {
  test('gets what it missed, each change once and in order, and goes on', async () => {
    const reader = await watch();
    await hello(reader);
    await write(3);
    const [, second] = await changes(reader, 2);
    reader.close();
    const missed = await write(1_200);
    const again = await watch(second?.id);
    expect((await hello(again)).data.resumed).toBe(true);
    const told = idsOf(await changes(again, 1_201));
    expect(told.slice(1)).toEqual(missed);
    const [fresh] = await write();
    expect((await next(again, 'change')).data.id).toBe(fresh);
  });

  test('gets a change whose transaction was late, at another director too', async () => {
    const second = await startDirector(database);
    await followsLog(second);
    const late = new pg.Client(database.url);
    await late.connect();
    try {
      const reader = await watch();
      await hello(reader);
      await late.query('begin');
      const open = Number((await late.query<{ id: string }>(WRITE, [1, 'new'])).rows[0]?.id);
      const [early] = await write();
      const told = await next(reader, 'change');
      expect(told.data.id).toBe(early);
      reader.close();
      await late.query('commit');
      const [after] = await write();
      const again = await watch(told.id, second.origin);
      expect(idsOf(await changes(again, 2)).toSorted((a, b) => a - b)).toEqual([open, after]);
    } finally {
      await late.end();
      await second.stop();
    }
  });

  test('is told that there is a gap when the log no longer goes back so far', async () => {
    const reader = await watch();
    await hello(reader);
    await write(2);
    const [first] = await changes(reader, 2);
    reader.close();
    await database.query('update relay.setting set changes_pruned_to = (select max(id) from relay.change)');
    const again = await watch(first?.id);
    expect((await next(again, 'gap')).data.reason).toBe('pruned');
    const [fresh] = await write();
    expect((await next(again, 'change')).data.id).toBe(fresh);
    expect(await metric('orca_relay_event_gaps_total')).toContainEqual({ reason: 'pruned', value: 1 });
  });

  test('is told that there is a gap when its id is none of ours, and starts at the head', async () => {
    const reader = await watch('yesterday');
    expect((await hello(reader)).data.resumed).toBe(false);
    const gap = await next(reader, 'gap');
    expect(gap.data.reason).toBe('unknown_id');
    reader.close();
    const [id] = await write();
    expect((await next(await watch(gap.id), 'change')).data.id).toBe(id);
  });

  test('waits while the database is away, and is brought up when it is back', async () => {
    const reader = await watch();
    await hello(reader);
    await write();
    const { id } = await next(reader, 'change');
    const missed = await write(2);
    await changes(reader, 2);
    reader.close();
    proxy.refuse();
    const again = await watch(id);
    await hello(again);
    await eventually(() => expect(again.comments()).toBeGreaterThan(1));
    expect(again.waiting()).toBe(0);
    proxy.open();
    expect(idsOf(await changes(again, 2))).toEqual(missed);
  });
});

describe('a reader that does not read', () => {
  test('is dropped with a reason, costs the others nothing, and may resume', async () => {
    const [slow, quick] = [await watch(), await watch()];
    await hello(slow);
    await hello(quick);
    await write();
    const last = await next(slow, 'change');
    slow.pause();
    const flood = await write(4_000, 'x'.repeat(2_000));
    await eventually(async () =>
      expect(await metric('orca_relay_event_readers_ended_total')).toContainEqual({ reason: 'slow', value: 1 }),
    );
    expect(idsOf(await changes(quick, 4_001)).slice(1)).toEqual(flood);
    slow.resume();
    await slow.ended;
    const again = await watch(last.id);
    expect((await next(again, 'change')).data.id).toBe(flood[0]);
  });
});

describe('who may read', () => {
  test('so many at once', async () => {
    const all = await Promise.all(Array.from({ length: MAX_READERS }, () => watch()));
    expect(all.every(({ status }) => status === 200)).toBe(true);
    const refused = await watch();
    expect([refused.status, refused.headers['retry-after'], JSON.parse(await refused.body())]).toEqual([
      503,
      '10',
      { error: 'too_many_readers' },
    ]);
    all[0]?.close();
    await eventually(async () => expect((await watch()).status).toBe(200));
  });

  test('without a key this machine alone, and no web site whose name resolves to it', async () => {
    const forwarded = await watch(undefined, director.origin, { 'x-forwarded-for': '203.0.113.1' });
    expect([forwarded.status, JSON.parse(await forwarded.body())]).toEqual([403, { error: 'loopback_only' }]);
    const rebound = await new Promise<number>((resolve, reject) => {
      request(`${director.origin}/v1/admin/events`, { headers: { host: 'rebound.example' } }, (response) => {
        response.destroy();
        resolve(response.statusCode ?? 0);
      })
        .on('error', reject)
        .end();
    });
    expect(rebound).toBe(403);
  });

  test('with a key its bearer', async () => {
    const guarded = await startDirector(database, { env: { ORCA_RELAY_METRICS_KEY: 'the-key-of-the-metrics' } });
    try {
      expect((await watch(undefined, guarded.origin)).status).toBe(401);
      const reader = await watch(undefined, guarded.origin, { authorization: 'Bearer the-key-of-the-metrics' });
      expect(reader.status).toBe(200);
      await hello(reader);
      await guarded.stop();
      await reader.ended;
    } finally {
      await guarded.stop();
    }
  });
});
