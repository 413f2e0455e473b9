import { request } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { FleetMessage } from '../../server/director/fleet-feed.ts';
import { MAX_WATCHERS } from '../../server/director/fleet-feed.ts';
import { holdsPass, PASS_MS, passCookie } from '../../server/director/fleet-pass.ts';
import type { RunningProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { type KnownCell, knownCell, newHostId, startDirector } from '../support/director.ts';
import { type EventReader, readEvents } from '../support/event-source.ts';
import { eventually } from '../support/eventually.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

const KEY = 'a metrics key, never in a URL';

let database: FreshDatabase;
let proxy: TcpProxy;
let director: RunningProcess;
let first: KnownCell;
const readers: EventReader[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await startProxy(database.url);
  // cells that beat once live on, however long the tests take
  await database.setClock(Date.now());
  first = await knownCell(database, 'us-1', { capacity: 100 });
  await knownCell(database, 'us-2', { capacity: 100 });
  await knownCell(database, 'asia-1', { region: 'asia-east2', hardCap: 300 });
  director = await startDirector(database, { through: proxy.through });
});
afterEach(() => {
  proxy.open();
  for (const reader of readers.splice(0)) reader.close();
});
afterAll(async () => {
  await director?.stop();
  await proxy?.stop();
  await database?.drop();
});

async function watch(origin = director.origin, headers: Record<string, string> = {}): Promise<EventReader> {
  const reader = await readEvents(`${origin}/fleet/events`, headers);
  readers.push(reader);
  return reader;
}

/** Reads on until a message is as wanted. */
async function until(reader: EventReader, wanted: (message: FleetMessage) => boolean): Promise<FleetMessage> {
  for (;;) {
    const message = await reader.next<FleetMessage>();
    if (wanted(message)) return message;
  }
}

const assign = (host: string) => database.query('select outcome from relay_v1.assign($1, $2)', ['user-1', host]);
const cellOf = (message: FleetMessage, id: string) => message.fleet?.cells.find((cell) => cell.id === id);
const metric = async (name: string) =>
  (await director.metrics.registry.getSingleMetric(name)?.get())?.values.map(({ labels, value }) => ({
    ...labels,
    value,
  }));

describe('GET /fleet/events', () => {
  test('shows the fleet at once', async () => {
    const message = await (await watch()).next<FleetMessage>();
    expect(message.database).toEqual({ ok: true });
    expect(message.withheld).toEqual([]);
    expect(message.fleet?.cells.map(({ id, region }) => [id, region])).toEqual([
      ['asia-1', 'asia-east2'],
      ['us-1', 'us-central1'],
      ['us-2', 'us-central1'],
    ]);
    expect(cellOf(message, 'us-1')).toMatchObject({
      state: 'live',
      admission: 'general',
      mode: 'db',
      load: 0,
      limit: 100,
      capped: false,
      draining: false,
      rolling: null,
    });
    expect(cellOf(message, 'asia-1')).toMatchObject({ capped: true, limit: 140 });
    expect(message.fleet?.changes[0]?.words).toBe('new process');
  });

  test('pushes a change of a cell, and a host that is placed, as they come', async () => {
    const reader = await watch();
    await reader.next();
    const startedAt = performance.now();
    await database.query("select relay_v1.set_admission('us-2', 'existing-only')");
    const changed = await until(reader, (message) => cellOf(message, 'us-2')?.admission === 'existing-only');
    expect(performance.now() - startedAt).toBeLessThan(8_000);
    expect(changed.fleet?.changes[0]).toMatchObject({
      words: 'admission general → existing-only',
      to: 'us-2',
      host: null,
    });

    const host = newHostId();
    await assign(host);
    const placed = await until(reader, ({ fleet }) => fleet?.changes[0]?.host != null);
    expect(placed.fleet?.changes[0]).toMatchObject({ words: 'host placed: first seen', epoch: 1, from: null });
    expect(JSON.stringify(placed)).not.toContain(host);
    expect(placed.fleet?.changes[0]?.host).toMatch(/^[0-9a-f]{12}$/);
    await database.query("select relay_v1.set_admission('us-2', 'general')");
  });

  test('many changes make few messages', async () => {
    const reader = await watch();
    await reader.next();
    for (let n = 0; n < 40; n += 1) await assign(newHostId());
    await until(
      reader,
      ({ fleet }) => (fleet?.changes.filter(({ words }) => words.startsWith('host placed')).length ?? 0) > 24,
    );
    const reads = await metric('orca_relay_fleet_reads_total');
    expect(reads).toMatchObject([{ outcome: 'ok' }]);
    expect(reader.waiting()).toBeLessThan(5);
  });

  test('shows a drain and its migrations', async () => {
    const reader = await watch();
    await first.beat();
    await database.query("select relay_v1.set_admission('us-1', 'migration-only')");
    await database.query("select relay_v1.start_drain('us-1', 5000, 9000)");
    const [moving] = await database.query<{ relay_host_id: string }>(
      "select relay_host_id from relay.assignment where cell_id = 'us-1' limit 1",
    );
    await assign(moving?.relay_host_id ?? '');
    const message = await until(reader, ({ fleet }) => fleet?.migrations.length === 1);
    expect(message.fleet?.drains).toMatchObject([{ cell: 'us-1', current: true, grace: 5_000, pace: 9_000 }]);
    expect(message.fleet?.migrations[0]).toMatchObject({ from: 'us-1', hosts: 1, pinned: 1, registered: 0 });
    expect(cellOf(message, 'us-1')?.draining).toBe(true);
    expect(message.fleet?.changes.map(({ words }) => words)).toEqual(
      expect.arrayContaining(['host moved: its cell drains', 'drain ordered', 'admission general → migration-only']),
    );
    await database.query("select relay_v1.cancel_drain('us-1')");
    await database.query("select relay_v1.set_admission('us-1', 'general')");
  });

  test('says that the database is away, how old the picture is, and when it is back', async () => {
    const reader = await watch();
    const before = await reader.next<FleetMessage>();
    proxy.refuse();
    const away = await until(reader, ({ database }) => !database.ok);
    expect(away.database).toMatchObject({ ok: false, reason: 'unavailable' });
    expect(away.fleet?.cells.map(({ id }) => id)).toEqual(before.fleet?.cells.map(({ id }) => id));
    const later = await until(reader, ({ age }) => age > away.age);
    expect(later.database).toMatchObject({ ok: false });
    // who comes now is told so at once, with what there was
    const second = await (await watch()).next<FleetMessage>();
    expect(second.database.ok).toBe(false);
    expect(second.fleet).not.toBeNull();
    proxy.open();
    expect((await until(reader, ({ database }) => database.ok)).age).toBeLessThan(1_000);
  });

  test('refuses a watcher too many, and takes one again when another has left', async () => {
    const all = await Promise.all(Array.from({ length: MAX_WATCHERS }, () => watch()));
    expect(all.every(({ status }) => status === 200)).toBe(true);
    const refused = await watch();
    expect([refused.status, refused.headers['retry-after'], JSON.parse(await refused.body())]).toEqual([
      503,
      '10',
      { error: 'too_many_watchers' },
    ]);
    expect(await metric('orca_relay_fleet_page_refused_total')).toContainEqual({ reason: 'full', value: 1 });
    all[0]?.close();
    await eventually(async () => expect((await watch()).status).toBe(200));
    const ended = await metric('orca_relay_fleet_watchers_ended_total');
    expect(ended).toContainEqual({ reason: 'hung-up', value: expect.any(Number) });
  });

  test('a director that stops ends the streams', async () => {
    const leaving = await startDirector(database);
    const reader = await watch(leaving.origin);
    await reader.next();
    await leaving.stop();
    await reader.ended;
  });
});

describe('the page', () => {
  test.each([
    ['/fleet', 'text/html; charset=utf-8', '<title>Fleet'],
    ['/fleet/page.js', 'text/javascript; charset=utf-8', 'EventSource'],
    ['/fleet/show.js', 'text/javascript; charset=utf-8', 'export function showFleet'],
    ['/fleet/page.css', 'text/css; charset=utf-8', 'prefers-color-scheme: dark'],
    ['/fleet/icon.svg', 'image/svg+xml', '<svg'],
  ])('serves %s', async (path, type, part) => {
    const reply = await fetch(`${director.origin}${path}`);
    expect(reply.status).toBe(200);
    expect(reply.headers.get('content-type')).toBe(type);
    expect(reply.headers.get('content-security-policy')).toMatch(
      /^default-src 'none'; script-src 'self'; style-src 'self';/,
    );
    expect(reply.headers.get('x-content-type-options')).toBe('nosniff');
    expect(await reply.text()).toContain(part);
  });
});

const paths = ['/fleet', '/fleet/events'];

describe('without a metrics key', () => {
  test.each(paths)('%s is for this machine alone', async (path) => {
    const forwarded = await fetch(`${director.origin}${path}`, { headers: { 'x-forwarded-for': '203.0.113.1' } });
    expect(forwarded.status).toBe(403);
    expect(await forwarded.text()).toContain(path === '/fleet' ? 'ssh -L' : 'loopback_only');
  });

  test.each(paths)('%s is not for a web site whose name resolves to this machine', async (path) => {
    const asked = (host: string) =>
      new Promise<number>((resolve, reject) => {
        request(`${director.origin}${path}`, { headers: { host } }, (response) => {
          response.destroy();
          resolve(response.statusCode ?? 0);
        })
          .on('error', reject)
          .end();
      });
    expect(await asked('rebound.example')).toBe(403);
    expect(await asked('localhost.example:8080')).toBe(403);
    expect(await asked('localhost:8080')).toBe(200);
    expect(await asked('[::1]:8080')).toBe(200);
  });

  test('takes no key', async () => {
    expect((await fetch(`${director.origin}/fleet`, { method: 'POST', body: 'key=' })).status).toBe(404);
  });
});

describe('with a metrics key', () => {
  let guarded: RunningProcess;
  beforeAll(async () => {
    guarded = await startDirector(database, { env: { ORCA_RELAY_METRICS_KEY: KEY.replaceAll(/[ ,]/g, '-') } });
  });
  afterAll(() => guarded?.stop());
  const key = KEY.replaceAll(/[ ,]/g, '-');
  const post = (given: string) =>
    fetch(`${guarded.origin}/fleet`, { method: 'POST', body: new URLSearchParams({ key: given }), redirect: 'manual' });
  const get = (path: string, headers: Record<string, string> = {}) => fetch(`${guarded.origin}${path}`, { headers });

  test('asks for it once, and remembers the browser', async () => {
    const asked = await get('/fleet');
    expect(asked.status).toBe(401);
    expect(await asked.text()).toContain('<form method="post" action="/fleet">');
    const let_in = await post(key);
    expect([let_in.status, let_in.headers.get('location')]).toEqual([303, '/fleet']);
    const cookie = let_in.headers.get('set-cookie') ?? '';
    expect(cookie).toMatch(/; Path=\/fleet; Max-Age=43200; HttpOnly; SameSite=Strict$/);
    expect(cookie).not.toContain(key);
    const [pass] = cookie.split(';') as [string];
    expect(await (await get('/fleet', { cookie: pass })).text()).toContain('id="regions"');
    expect((await watch(guarded.origin, { cookie: `other=1; ${pass}` })).status).toBe(200);
  });

  test('refuses without it, with another, and with a forged pass', async () => {
    expect((await post('wrong')).status).toBe(401);
    expect(await (await post(`${key}x`)).text()).toContain('That is not the key.');
    expect((await get('/fleet/events')).status).toBe(401);
    const forged = passCookie('another key', Date.now(), false).split(';')[0] as string;
    expect((await get('/fleet/events', { cookie: forged })).status).toBe(401);
    expect((await get(`/fleet?key=${key}`)).status).toBe(401);
  });

  test('takes it as a bearer, as the metrics do', async () => {
    expect((await watch(guarded.origin, { authorization: `Bearer ${key}` })).status).toBe(200);
  });

  test('a pass counts for 12 h, with this key', () => {
    const now = 1_900_000_000_000;
    const pass = passCookie(key, now, true);
    expect(pass).toMatch(/; Secure$/);
    const cookie = pass.split(';')[0];
    expect(holdsPass(key, cookie, now)).toBe(true);
    expect(holdsPass(key, cookie, now + PASS_MS - 1)).toBe(true);
    expect(holdsPass(key, cookie, now + PASS_MS)).toBe(false);
    expect(holdsPass('changed', cookie, now)).toBe(false);
    expect(holdsPass(key, cookie?.replace(/=\d/, '=9'), now)).toBe(false);
    expect(holdsPass(key, undefined, now)).toBe(false);
  });
});
