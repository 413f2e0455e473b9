import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../server/clock.ts';
import type { RunningProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { type Answer, type KnownCell, knownCell, newHostId, post, startDirector } from '../support/director.ts';
import { eventually } from '../support/eventually.ts';
import { type KeyServer, startKeyServer } from '../support/key-server.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

let database: FreshDatabase;
let keys: KeyServer;
let proxy: TcpProxy;
let director: RunningProcess;
let home: KnownCell;
let host: string;
let shift = 0;
/** The machine's clock, which a test may put forward. */
const clock: Clock = { ...systemClock, now: () => systemClock.now() + shift };

beforeAll(async () => {
  [database, keys] = await Promise.all([freshDatabase(), startKeyServer()]);
  proxy = await startProxy(database.url);
  home = await knownCell(database, 'us-1');
  director = await startDirector(database, {
    keys,
    clock,
    through: proxy.through,
    env: { ORCA_RELAY_PUBLIC_STICKY_QUEUE_MAX: '2' },
  });
});
afterAll(async () => {
  await director?.stop();
  await proxy?.stop();
  await keys?.stop();
  await database?.drop();
});
beforeEach(() => {
  host = newHostId();
});
afterEach(async () => {
  proxy.open();
  await home.beat();
});

const assign = async (relayHostId = host, signal?: AbortSignal): Promise<Answer> =>
  post(
    `${director.origin}/v1/assign`,
    { v: 1, relayHostId },
    { token: await keys.relayToken(relayHostId), ...(signal ? { signal } : {}) },
  );
const refusals = async (reason: string): Promise<number> => {
  const text = await (await fetch(`${director.origin}/metrics`)).text();
  const line = text
    .split('\n')
    .find((one) => one.startsWith('orca_relay_director_refused_total') && one.includes(`reason="${reason}"`));
  return Number(line?.split(' ').at(-1) ?? 0);
};

/** Holds the host's row, as another director's move of it would. */
async function withHostLocked(relayHostId: string, work: () => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    await client.query('begin');
    await client.query('select 1 from relay.assignment where relay_host_id = $1 for update', [relayHostId]);
    await work();
  } finally {
    await client.end();
  }
}

describe('pacing', () => {
  test('a host that asks again at once is told when to come: 2 s after a kept grant, 5 s after a placement', async () => {
    expect((await assign()).status).toBe(200);
    expect(await assign()).toMatchObject({
      status: 503,
      body: { error: 'assignments_temporarily_unavailable' },
      retryAfter: 5,
    });
    shift += 5_000;
    expect((await assign()).status).toBe(200);
    expect(await assign()).toMatchObject({ status: 503, retryAfter: 2 });
    shift += 2_000;
    expect((await assign()).status).toBe(200);
    expect(await refusals('host-rate-limited')).toBe(2);
  });

  test('one ask at a time for a host; one that hung up is forgotten when its call is over', async () => {
    await assign(newHostId());
    await assign(host);
    shift += 5_000;
    await database.query('delete from relay.lease where relay_host_id = $1', [host]);
    proxy.mute();
    const hangUp = new AbortController();
    const first = assign(host, hangUp.signal).catch(() => 'hung up');
    const leases = () => database.query('select 1 from relay.lease where relay_host_id = $1', [host]);
    await eventually(async () => expect(await leases()).toHaveLength(1));
    expect(await assign(host)).toMatchObject({ status: 503, retryAfter: 1 });
    hangUp.abort();
    expect(await first).toBe('hung up');
    expect(await assign(host)).toMatchObject({ status: 503, retryAfter: 1 });
    expect(await refusals('host-in-flight')).toBe(2);
    proxy.open();
    proxy.cut();
    await eventually(async () => expect((await assign(host)).status).toBe(200));
  });

  test('a row that another holds: 503 assignment_row_busy, Retry-After 1, and other hosts go on', async () => {
    await assign();
    shift += 5_000;
    await database.query('delete from relay.lease where relay_host_id = $1', [host]);
    await withHostLocked(host, async () => {
      const busy = assign();
      expect((await assign(newHostId())).status).toBe(200);
      expect(await busy).toMatchObject({ status: 503, body: { error: 'assignment_row_busy' }, retryAfter: 1 });
    });
  });

  test('a queue that is full turns hosts away, each to its own time', async () => {
    await assign(newHostId());
    proxy.mute();
    const asked = Array.from({ length: 8 }, () => assign(newHostId()));
    const told: number[] = [];
    for (const one of asked) void one.then((answer) => told.push(answer.retryAfter ?? 0));
    await eventually(() => expect(told.length).toBe(5));
    for (const seconds of told) expect(seconds).toBeGreaterThanOrEqual(2);
    expect(await refusals('queue-full')).toBe(5);
    proxy.open();
    proxy.cut();
    const answers = await Promise.all(asked);
    for (const { status } of answers) expect([200, 503]).toContain(status);
    await eventually(async () => expect((await assign(newHostId())).status).toBe(200));
  });

  test('assignments switched off: 503 with Retry-After, for assign alone', async () => {
    const off = await startDirector(database, { keys, env: { ORCA_RELAY_PUBLIC_ASSIGNMENTS_ENABLED: 'false' } });
    try {
      const token = await keys.relayToken(host);
      expect(await post(`${off.origin}/v1/assign`, { v: 1, relayHostId: host }, { token })).toMatchObject({
        status: 503,
        body: { error: 'assignments_temporarily_unavailable' },
        retryAfter: 5,
      });
      expect((await fetch(`${off.origin}/v1/regions`)).status).toBe(200);
    } finally {
      await off.stop();
    }
  });
});
