import { jwtVerify } from 'jose';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { assignReply } from '../../contract/http.ts';
import type { RunningProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import {
  type Answer,
  type KnownCell,
  knownCell,
  newHostId,
  post,
  SIGNING_KEY,
  startDirector,
} from '../support/director.ts';
import { type KeyServer, startKeyServer } from '../support/key-server.ts';

let database: FreshDatabase;
let keys: KeyServer;
let director: RunningProcess;
let cells: KnownCell[];
let host: string;

beforeAll(async () => {
  [database, keys] = await Promise.all([freshDatabase(), startKeyServer()]);
  cells = [await knownCell(database, 'us-1'), await knownCell(database, 'asia-1', { region: 'asia-east2' })];
  director = await startDirector(database, { keys });
});
afterAll(async () => {
  await director?.stop();
  await keys?.stop();
  await database?.drop();
});
beforeEach(async () => {
  host = newHostId();
  for (const cell of cells) await cell.beat();
});
afterEach(async () => {
  await database.query('update relay.cell set admission = $1', ['general']);
});

const assign = async (body: Record<string, unknown> = {}, token?: string): Promise<Answer> =>
  post(
    `${director.origin}/v1/assign`,
    { v: 1, relayHostId: host, ...body },
    { token: token ?? (await keys.relayToken(host)) },
  );

describe('POST /v1/assign', () => {
  test('places a new host: strict reply, and a lease that cells can check (S4)', async () => {
    const { status, body } = await assign({ preferredRegion: 'us-central1' });
    expect(status).toBe(200);
    expect(assignReply.parse(body)).toEqual(body);
    expect(body).toMatchObject({ v: 1, cellUrl: 'https://us-1.example.test', assignmentEpoch: 1 });
    const { payload } = await jwtVerify(body.lease, Buffer.from(SIGNING_KEY), { audience: 'orca-relay-cell' });
    expect(payload).toMatchObject({
      iss: director.origin,
      sub: 'user-1',
      cellId: 'us-1',
      cellUrl: body.cellUrl,
      assignmentEpoch: 1,
      relayHostId: host,
      purpose: 'cell-assignment',
    });
  });

  test('prefers the region that the host asks for, and takes any region name', async () => {
    expect((await assign({ preferredRegion: 'asia-east2' })).body.cellUrl).toBe('https://asia-1.example.test');
    host = newHostId();
    expect((await assign({ preferredRegion: 'atlantis' })).status).toBe(200);
  });

  test.each([[{}], [{ reconnect: true }], [{ reconnect: false, regionCorrection: { v: 1, action: 'issue-window' } }]])(
    'takes %j',
    async (body) => {
      const answer = await assign(body);
      expect(answer.status).toBe(200);
      expect(Object.keys(answer.body).sort()).toEqual(['assignmentEpoch', 'cellUrl', 'lease', 'v']);
    },
  );

  test('keeps a host where it is', async () => {
    const other = await startDirector(database, { keys });
    try {
      const first = await assign();
      const again = await post(
        `${other.origin}/v1/assign`,
        { v: 1, relayHostId: host, reconnect: true },
        { token: await keys.relayToken(host) },
      );
      expect(again.body).toMatchObject({ cellUrl: first.body.cellUrl, assignmentEpoch: 1 });
    } finally {
      await other.stop();
    }
  });

  test('moves a host whose home went silent', async () => {
    await assign({ preferredRegion: 'us-central1' });
    const moving = await startDirector(database, { keys });
    try {
      // Hearing: the living cell has been heard all the while.
      for (let seconds = 0; seconds < 75; seconds += 15) {
        await database.advanceClock(15_000);
        await cells[1]?.beat();
      }
      const { status, body } = await post(
        `${moving.origin}/v1/assign`,
        { v: 1, relayHostId: host },
        { token: await keys.relayToken(host) },
      );
      expect(status).toBe(200);
      expect(body).toMatchObject({ cellUrl: 'https://asia-1.example.test', assignmentEpoch: 2 });
      const changes = await database.query(
        'select kind, rule, epoch from relay.change where relay_host_id = $1 order by id',
        [host],
      );
      expect(changes.at(-1)).toMatchObject({ kind: 'moved', rule: 'dead-uncapped', epoch: 2 });
    } finally {
      await moving.stop();
    }
  });
});

describe('a region report (wire 1.10)', () => {
  const report = (overrides: Record<string, unknown> = {}) => ({
    v: 1,
    action: 'report',
    generation: 1,
    assignmentEpoch: 1,
    policyVersion: 1,
    outcome: 'conclusive',
    measurements: { 'us-central1': 20.5, 'asia-east2': 150 },
    ...overrides,
  });

  test('places nobody: 409 for a host without a row', async () => {
    expect(await assign({ regionCorrection: report() })).toMatchObject({
      status: 409,
      body: { error: 'assignment_not_found' },
    });
    expect(await database.query('select 1 from relay.assignment where relay_host_id = $1', [host])).toEqual([]);
  });

  test('answers the current assignment, moves and leases nothing', async () => {
    const first = await assign({ preferredRegion: 'us-central1' });
    const before = await database.query('select * from relay.lease where relay_host_id = $1', [host]);
    const answer = await assign({ regionCorrection: report(), preferredRegion: 'asia-east2' });
    expect(answer.status).toBe(200);
    expect(answer.body).toMatchObject({ cellUrl: first.body.cellUrl, assignmentEpoch: 1 });
    expect(await database.query('select * from relay.lease where relay_host_id = $1', [host])).toEqual(before);
    const inconclusive = report({ outcome: 'inconclusive', reason: 'spread', measurements: undefined });
    expect((await assign({ regionCorrection: inconclusive })).status).toBe(200);
  });
});

describe('bad input', () => {
  const bad: [string, unknown][] = [
    ['nothing', ''],
    ['no JSON', '{"v":1,'],
    ['no UTF-8', Buffer.from([0x7b, 0xff, 0xfe, 0x7d])],
    ['an array', []],
    ['null', null],
    ['a number', 7],
    ['no version', { relayHostId: 'abcdefghijklmnop' }],
    ['another version', { v: 2, relayHostId: 'abcdefghijklmnop' }],
    ['a version of text', { v: '1', relayHostId: 'abcdefghijklmnop' }],
    ['no host id', { v: 1 }],
    ['a short host id', { v: 1, relayHostId: 'abc' }],
    ['a host id of 17', { v: 1, relayHostId: 'abcdefghijklmnopq' }],
    ['an unknown key', { v: 1, relayHostId: 'abcdefghijklmnop', extra: true }],
    ['reconnect as text', { v: 1, relayHostId: 'abcdefghijklmnop', reconnect: 'yes' }],
    ['a region of capitals', { v: 1, relayHostId: 'abcdefghijklmnop', preferredRegion: 'US' }],
    ['a region of 64', { v: 1, relayHostId: 'abcdefghijklmnop', preferredRegion: 'r'.repeat(64) }],
    ['an unknown correction', { v: 1, relayHostId: 'abcdefghijklmnop', regionCorrection: { v: 1, action: 'move' } }],
  ];
  test.each(bad)('%s: 400', async (_, body) => {
    expect(await post(`${director.origin}/v1/assign`, body, { token: await keys.relayToken(host) })).toMatchObject({
      status: 400,
      body: { error: 'invalid_request' },
    });
  });

  test('4 097 bytes: 413; 4 096 are read', async () => {
    const token = await keys.relayToken(host);
    const padded = (length: number) => JSON.stringify({ v: 1, relayHostId: host }).padEnd(length);
    expect(await post(`${director.origin}/v1/assign`, padded(4_097), { token })).toMatchObject({
      status: 413,
      body: { error: 'request_too_large' },
    });
    expect(await post(`${director.origin}/v1/assign`, padded(4_096), { token })).toMatchObject({ status: 200 });
  });

  test.each<[string, Record<string, string>]>([
    ['no bearer', {}],
    ['another scheme', { authorization: 'Basic dXNlcjpwYXNz' }],
    ['no token', { authorization: 'Bearer ' }],
    ['garbage', { authorization: 'Bearer garbage' }],
  ])('%s: 401 (S2)', async (_, headers) => {
    expect(await post(`${director.origin}/v1/assign`, { v: 1, relayHostId: host }, { headers })).toMatchObject({
      status: 401,
      body: { error: 'invalid_token' },
    });
  });

  test('a token for another audience: 401 (S2)', async () => {
    const token = await keys.relayToken(host, { aud: 'orca-cloud' });
    expect(await assign({}, token)).toMatchObject({ status: 401, body: { error: 'invalid_token' } });
  });

  test('a token of another host: 403', async () => {
    expect(await assign({}, await keys.relayToken(newHostId()))).toMatchObject({
      status: 403,
      body: { error: 'host_identity_mismatch' },
    });
  });

  test('GET /v1/assign and an unknown path: 404', async () => {
    for (const path of ['/v1/assign', '/v1/nothing', '/healthz']) {
      expect((await fetch(director.origin + path)).status).toBe(404);
    }
  });
});

describe('what the database refuses', () => {
  test('no cell takes hosts: 503 relay_capacity_exhausted', async () => {
    await database.query("update relay.cell set admission = 'existing-only'");
    expect(await assign()).toMatchObject({
      status: 503,
      body: { error: 'relay_capacity_exhausted' },
      retryAfter: null,
    });
  });

  test('a capped home that is silent: 503 relay_home_cell_unavailable', async () => {
    const capped = await knownCell(database, `capped-${host.toLowerCase().replace(/[^a-z]/g, '')}`, {
      region: 'capped',
      hardCap: 600,
    });
    await assign({ preferredRegion: 'capped' });
    await capped.beat(false);
    const other = await startDirector(database, { keys });
    try {
      const answer = await post(
        `${other.origin}/v1/assign`,
        { v: 1, relayHostId: host },
        { token: await keys.relayToken(host) },
      );
      expect(answer).toMatchObject({ status: 503, body: { error: 'relay_home_cell_unavailable' }, retryAfter: null });
    } finally {
      await other.stop();
    }
  });
});
