import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { RunningProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import {
  type Answer,
  installedToken,
  type KnownCell,
  knownCell,
  newHostId,
  post,
  startDirector,
} from '../support/director.ts';
import { eventually } from '../support/eventually.ts';
import { type KeyServer, startKeyServer } from '../support/key-server.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

let database: FreshDatabase;
let keys: KeyServer;
let proxy: TcpProxy;
let director: RunningProcess;
let home: KnownCell;
let host: string;

beforeAll(async () => {
  [database, keys] = await Promise.all([freshDatabase(), startKeyServer()]);
  proxy = await startProxy(database.url);
  home = await knownCell(database, 'us-1');
  await knownCell(database, 'us-2');
  director = await startDirector(database, { keys, through: proxy.through });
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

const assignAt = async (origin: string, relayHostId: string, signal?: AbortSignal): Promise<Answer> =>
  post(
    `${origin}/v1/assign`,
    { v: 1, relayHostId, reconnect: true },
    { token: await keys.relayToken(relayHostId), ...(signal ? { signal } : {}) },
  );
const assign = (relayHostId = host) => assignAt(director.origin, relayHostId);
const rowOf = (relayHostId: string) =>
  database.query('select cell_id, epoch from relay.assignment where relay_host_id = $1', [relayHostId]);
/** As the wire to Postgres carries it: assign for a host with `place` true. */
const PLACES = /host[\s\S]{0,64}true/;
/** F7: whose host it is cannot be known without Postgres, which checks the phone's credential first. */
const unknownOwner = {
  status: 503,
  body: { error: 'owner_unknown', retryAfterMs: expect.any(Number), cause: 'store_unavailable' },
  retryAfter: expect.any(Number),
};
const later = { status: 503, body: { error: 'assignments_temporarily_unavailable' }, retryAfter: expect.any(Number) };

describe('the reply of a commit is lost (incident 37)', () => {
  test('the next assign gives the same cell and epoch', async () => {
    proxy.mute(PLACES);
    const lost = assign();
    await eventually(async () => expect(await rowOf(host)).toHaveLength(1));
    proxy.open();
    proxy.cut();
    expect(await lost).toMatchObject(later);
    const [row] = await rowOf(host);
    expect(row?.epoch).toBe(1);
    expect(await assign()).toMatchObject({
      status: 200,
      body: { cellUrl: `https://${row?.cell_id}.example.test`, assignmentEpoch: 1 },
    });
    expect(await database.query('select kind, rule from relay.change where relay_host_id = $1', [host])).toEqual([
      { kind: 'placed', rule: 'new' },
    ]);
  });

  test('a move too: it is not made twice', async () => {
    const leaving = await knownCell(database, `leaving-${Date.now()}`, { region: 'leaving' });
    const token = await keys.relayToken(host);
    const asked = { v: 1, relayHostId: host, preferredRegion: 'leaving' };
    expect((await post(`${director.origin}/v1/assign`, asked, { token })).body.cellUrl).toBe(leaving.url);
    const second = await startDirector(database, { keys, through: proxy.through });
    try {
      for (let seconds = 0; seconds < 75; seconds += 15) {
        await database.advanceClock(15_000);
        await home.beat();
      }
      proxy.mute(PLACES);
      const lost = assignAt(second.origin, host);
      await eventually(async () => expect(await rowOf(host)).toMatchObject([{ epoch: 2 }]));
      proxy.open();
      proxy.cut();
      expect(await lost).toMatchObject(later);
      expect(await assignAt(second.origin, host)).toMatchObject({
        status: 200,
        body: { cellUrl: home.url, assignmentEpoch: 2 },
      });
    } finally {
      await second.stop();
    }
  });
});

describe('the reply of a place for a phone is lost', () => {
  test('O16 it is made once, and the phone finds it when it asks again', async () => {
    const phone = await installedToken(database, host);
    const resolve = () => post(`${director.origin}/v1/resolve`, { v: 1, relayHostId: host, resumeToken: phone });
    proxy.mute(/resolve[\s\S]{0,64}true/);
    const lost = resolve();
    await eventually(async () => expect(await rowOf(host)).toHaveLength(1));
    proxy.open();
    proxy.cut();
    expect(await lost).toMatchObject(unknownOwner);
    expect(await resolve()).toMatchObject({ status: 200, body: { assignmentEpoch: 1 } });
    expect(await database.query('select kind, rule from relay.change where relay_host_id = $1', [host])).toEqual([
      { kind: 'placed', rule: 'new' },
    ]);
  });
});

describe('Postgres away', () => {
  test('O15 hosts and phones are told to come back; health, metrics and known regions go on; normal after', async () => {
    const phone = await installedToken(database, host);
    await fetch(`${director.origin}/v1/regions`);
    expect((await assign()).status).toBe(200);
    proxy.refuse();
    const other = newHostId();
    expect(await assign(other)).toMatchObject(later);
    const resolved = await post(`${director.origin}/v1/resolve`, { v: 1, relayHostId: host, resumeToken: phone });
    expect(resolved).toMatchObject(unknownOwner);
    expect(resolved.body.retryAfterMs).toBe((resolved.retryAfter ?? 0) * 1_000);
    expect((await fetch(`${director.origin}/health`)).status).toBe(200);
    expect((await fetch(`${director.origin}/metrics`)).status).toBe(200);
    expect((await fetch(`${director.origin}/v1/regions`)).status).toBe(200);
    proxy.open();
    await eventually(async () => expect((await assign(other)).status).toBe(200));
  });

  test('every backend killed at once under load: retryable answers, no process ends (incidents 3, 35)', async () => {
    const hosts = Array.from({ length: 60 }, () => newHostId());
    const answers = Promise.all(hosts.map((one) => assign(one)));
    await database.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and usename = 'relay_director'`,
    );
    for (const { status } of await answers) expect([200, 503]).toContain(status);
    const again = await Promise.all(hosts.map((one) => assign(one)));
    // Who was granted just now is told to come a little later; nobody is refused for good.
    for (const { status, retryAfter } of again) expect(status === 200 || retryAfter !== null).toBe(true);
    expect((await assign(newHostId())).status).toBe(200);
  });

  test('connections in a black hole are given up, new ones are made (incident 27)', async () => {
    const own = await startDirector(database, {
      keys,
      through: proxy.through,
      env: { ORCA_RELAY_POSTGRES_STATEMENT_TIMEOUT_MS: '300' },
    });
    try {
      expect((await assignAt(own.origin, newHostId())).status).toBe(200);
      proxy.swallow(/^orca-relay\/director/);
      await eventually(async () => {
        const answer = await assignAt(own.origin, newHostId());
        if (answer.status !== 200) expect(answer).toMatchObject(later);
        expect(answer.status).toBe(200);
      });
    } finally {
      await own.stop();
    }
  });
});

describe('Postgres answers what nobody foresaw', () => {
  test('hosts and phones are told to come back, and never 500', async () => {
    const phone = await installedToken(database, host);
    const own = await startDirector(database, { keys });
    const asked = 'execute on function relay_v1.assign, relay_v1.resolve, relay_v1.regions';
    await database.query(`revoke ${asked} from relay_director`);
    try {
      expect(await assignAt(own.origin, host)).toMatchObject(later);
      const resolve = { v: 1, relayHostId: host, resumeToken: phone };
      expect(await post(`${own.origin}/v1/resolve`, resolve)).toMatchObject(unknownOwner);
      expect((await fetch(`${own.origin}/v1/regions`)).status).toBe(503);
    } finally {
      await database.query(`grant ${asked} to relay_director`);
      await own.stop();
    }
  });
});

describe('the key server away', () => {
  test('at boot: not ready, health ok (S1); a host is told to come back, never refused for good', async () => {
    const token = await keys.relayToken(host);
    await keys.stop();
    const own = await startDirector(database, { keys });
    try {
      const ask = () => post(`${own.origin}/v1/assign`, { v: 1, relayHostId: host }, { token });
      expect((await fetch(`${own.origin}/ready`)).status).toBe(503);
      expect((await fetch(`${own.origin}/health`)).status).toBe(200);
      expect(await ask()).toMatchObject(later);
      await keys.restart();
      await eventually(async () => expect((await ask()).status).toBe(200));
    } finally {
      await own.stop();
    }
  });

  test('later: nobody notices', async () => {
    await assign(newHostId());
    const token = await keys.relayToken(host);
    await keys.stop();
    try {
      expect(await post(`${director.origin}/v1/assign`, { v: 1, relayHostId: host }, { token })).toMatchObject({
        status: 200,
      });
    } finally {
      await keys.restart();
    }
  });
});

describe('two directors at once', () => {
  test('a host that asks both gets one cell at one epoch', async () => {
    const second = await startDirector(database, { keys });
    try {
      const hosts = Array.from({ length: 40 }, () => newHostId());
      const settle = async (origin: string, relayHostId: string): Promise<Answer> =>
        eventually(async () => {
          const answer = await assignAt(origin, relayHostId);
          expect(answer.status).toBe(200);
          return answer;
        });
      await Promise.all(
        hosts.map(async (one) => {
          const [a, b] = await Promise.all([settle(director.origin, one), settle(second.origin, one)]);
          expect([a.body.cellUrl, a.body.assignmentEpoch]).toEqual([b.body.cellUrl, b.body.assignmentEpoch]);
        }),
      );
      const history = await database.query(
        "select relay_host_id, count(*) as n from relay.change where kind in ('placed', 'moved') and relay_host_id = any($1) group by 1",
        [hosts],
      );
      expect(history).toHaveLength(40);
      expect(history.every(({ n }) => n === 1)).toBe(true);
    } finally {
      await second.stop();
    }
  });

  test('one that would exceed what directors may hold together does not start', async () => {
    const clients = await Promise.all(
      Array.from({ length: 62 }, async (_, i) => {
        const client = new pg.Client({
          connectionString: database.urlFor('relay_director'),
          application_name: `orca-relay/director/${i}`,
        });
        await client.connect();
        return client;
      }),
    );
    try {
      await expect(startDirector(database, { keys })).rejects.toThrow(/ORCA_RELAY_DATABASE_POOL_MAX 3 .* exceed 64/);
    } finally {
      await Promise.all(clients.map((client) => client.end()));
    }
  });
});
