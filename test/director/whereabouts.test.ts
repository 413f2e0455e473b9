import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Whereabouts, whereabouts } from '../../contract/whereabouts.ts';
import { hostDigest } from '../../server/log.ts';
import type { RunningProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { followsLog, type KnownCell, knownCell, newHostId, startDirector } from '../support/director.ts';
import { eventually } from '../support/eventually.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

let database: FreshDatabase;
let proxy: TcpProxy;
let director: RunningProcess;
let home: KnownCell;
let host: string;

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await startProxy(database.url);
  home = await knownCell(database, 'us-1');
  director = await startDirector(database, { through: proxy.through });
  await followsLog(director);
});
afterAll(async () => {
  await director?.stop();
  await proxy?.stop();
  await database?.drop();
});
beforeEach(async () => {
  host = newHostId();
  await home.beat();
});
afterEach(() => proxy.open());

async function ask(id = host, headers: Record<string, string> = {}, origin = director.origin) {
  const reply = await fetch(`${origin}/v1/admin/hosts/${id}`, { headers });
  // biome-ignore lint/suspicious/noExplicitAny: of several shapes, each judged by its test
  return { status: reply.status, retryAfter: reply.headers.get('retry-after'), body: (await reply.json()) as any };
}
const find = async (): Promise<Whereabouts> => whereabouts.parse((await ask()).body);
const place = () => database.query('select outcome from relay_v1.assign($1, $2)', ['user-1', host]);

describe('GET /v1/admin/hosts/<relayHostId>', () => {
  test('O15 tells what the row says, who says so, and what else is known', async () => {
    await place();
    await eventually(async () => expect((await find()).accounts[0]?.pending).not.toBeNull());
    const found = await find();
    expect(found).toMatchObject({ v: 1, relayHostId: host, store: { ok: true } });
    expect(found.accounts).toHaveLength(1);
    expect(found.accounts[0]).toMatchObject({
      host: hostDigest('user-1', host),
      // another process placed the host, and this director has read so
      owner: { cellId: 'us-1', epoch: 1, cellUrl: home.url, saidBy: 'pending', live: true },
      row: {
        cellId: 'us-1',
        epoch: 1,
        region: 'us-central1',
        admitMode: 'db',
        leases: [{ cellId: 'us-1', epoch: 1, state: 'granted' }],
        migration: null,
      },
      seats: [],
      left: [],
      pending: { cellId: 'us-1', epoch: 1, source: 'change' },
      floor: 1,
    });
    expect(JSON.stringify(found)).not.toContain('user-1');
  });

  test('P8, F8 a host that nobody knows: a retryable error, never a 404 and never an empty answer', async () => {
    const { status, retryAfter, body } = await ask();
    expect([status, retryAfter]).toEqual([503, '1']);
    expect(body).toMatchObject({ error: 'owner_unknown', retryAfterMs: 1_000, store: { ok: true }, accounts: [] });
    expect(body).not.toHaveProperty('cause');
  });

  test('F7 with Postgres away: what is in memory, else that the store was not to be had', async () => {
    await place();
    await eventually(async () => expect((await find()).accounts[0]?.pending).not.toBeNull());
    proxy.refuse();
    const found = await find();
    expect(found.store).toEqual({ ok: false, reason: 'unavailable' });
    expect(found.accounts[0]).toMatchObject({ owner: { cellId: 'us-1', saidBy: 'pending' }, row: null });
    expect(await ask(newHostId())).toMatchObject({
      status: 503,
      body: { error: 'owner_unknown', cause: 'store_unavailable', retryAfterMs: 1_000 },
    });
  });

  test('an id of two accounts: both', async () => {
    await place();
    await database.query('select outcome from relay_v1.assign($1, $2)', ['user-2', host]);
    const hosts = (await find()).accounts.map((account) => account.host);
    expect(hosts.toSorted()).toEqual([hostDigest('user-1', host), hostDigest('user-2', host)].toSorted());
  });

  test.each(['short', `${'a'.repeat(16)}/more`, 'a'.repeat(17), '%00', '%'])('400 for %j', async (id) => {
    expect(await ask(id)).toMatchObject({ status: 400, body: { error: 'invalid_request' } });
  });

  test('is for this machine alone, or the bearer of the metrics key', async () => {
    expect(await ask(host, { 'x-forwarded-for': '203.0.113.1' })).toMatchObject({
      status: 403,
      body: { error: 'loopback_only' },
    });
    const key = 'the-key-of-the-metrics';
    const guarded = await startDirector(database, { env: { ORCA_RELAY_METRICS_KEY: key } });
    try {
      expect(await ask(host, {}, guarded.origin)).toMatchObject({ status: 401, body: { error: 'unauthorized' } });
      expect((await ask(host, { authorization: `Bearer ${key}` }, guarded.origin)).status).toBe(503);
    } finally {
      await guarded.stop();
    }
  });
});
