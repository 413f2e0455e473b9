import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { newToken } from '../../contract/credentials.ts';
import { regionsReply, resolveReply } from '../../contract/http.ts';
import type { RunningProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { installedToken, type KnownCell, knownCell, newHostId, post, startDirector } from '../support/director.ts';
import { type KeyServer, startKeyServer } from '../support/key-server.ts';

let database: FreshDatabase;
let keys: KeyServer;
let director: RunningProcess;
let home: KnownCell;
let host: string;

beforeAll(async () => {
  [database, keys] = await Promise.all([freshDatabase(), startKeyServer()]);
  home = await knownCell(database, 'us-1');
  director = await startDirector(database, { keys });
});
afterAll(async () => {
  await director?.stop();
  await keys?.stop();
  await database?.drop();
});
beforeEach(async () => {
  host = newHostId();
  await home.beat();
});

const resolve = (resumeToken: unknown, body: Record<string, unknown> = {}) =>
  post(`${director.origin}/v1/resolve`, { v: 1, relayHostId: host, resumeToken, ...body });
const assign = async () =>
  post(`${director.origin}/v1/assign`, { v: 1, relayHostId: host }, { token: await keys.relayToken(host) });

describe('POST /v1/resolve', () => {
  test('tells a phone where its host is, strictly', async () => {
    const token = await installedToken(database, host);
    await assign();
    const { status, body } = await resolve(token);
    expect(status).toBe(200);
    expect(resolveReply.parse(body)).toEqual(body);
    expect(body).toMatchObject({ v: 1, cellUrl: home.url, assignmentEpoch: 1 });
    expect(body.leaseExpiresAt).toBeGreaterThan(Date.now());
  });

  test('places a host that has no cell', async () => {
    const token = await installedToken(database, host);
    const { status, body } = await resolve(token);
    expect(status).toBe(200);
    expect(resolveReply.parse(body)).toEqual(body);
    expect(body).toMatchObject({ cellUrl: home.url, assignmentEpoch: 1 });
    const [change] = await database.query('select kind, rule from relay.change where relay_host_id = $1', [host]);
    expect(change).toMatchObject({ kind: 'placed', rule: 'new' });
  });

  test('a phone with a stale cell gets the new one in one round trip (incident 17)', async () => {
    const token = await installedToken(database, host);
    await assign();
    await database.query("update relay.assignment set cell_id = 'us-2', epoch = epoch + 1 where relay_host_id = $1", [
      host,
    ]);
    const second = await knownCell(database, 'us-2');
    await database.query("update relay.cell set admission = 'migration-only' where cell_id = 'us-2'");
    expect((await resolve(token)).body).toMatchObject({ cellUrl: second.url, assignmentEpoch: 2 });
  });

  test('a home that is silent is a retryable error for a phone, never a 404 (incident 17, P8)', async () => {
    const token = await installedToken(database, host);
    await assign();
    await home.beat(false);
    expect(await resolve(token)).toMatchObject({ status: 503, body: { error: 'relay_home_cell_unavailable' } });
  });

  test('a token that is nobody’s, of another host, or expired: 401', async () => {
    const token = await installedToken(database, host);
    expect(await resolve(newToken())).toMatchObject({ status: 401, body: { error: 'invalid_credential' } });
    expect(await resolve(token, { relayHostId: newHostId() })).toMatchObject({ status: 401 });
    await database.query('update relay.device set resume_expires_at = relay.now() where relay_host_id = $1', [host]);
    expect(await resolve(token)).toMatchObject({ status: 401, body: { error: 'invalid_credential' } });
  });

  test.each<[string, Record<string, unknown>]>([
    ['no token', { resumeToken: undefined }],
    ['a short token', { resumeToken: 'a'.repeat(42) }],
    ['a long token', { resumeToken: 'a'.repeat(44) }],
    ['a token of other letters', { resumeToken: `${'a'.repeat(42)}=` }],
    ['a token that is no text', { resumeToken: 7 }],
    ['an unknown key', { extra: 1 }],
    ['another version', { v: 2 }],
    ['a malformed host', { relayHostId: '../../etc/passwd' }],
  ])('%s: 400', async (_, body) => {
    expect(await resolve(newToken(), body)).toMatchObject({ status: 400, body: { error: 'invalid_request' } });
  });

  test('4 097 bytes: 413', async () => {
    expect(await post(`${director.origin}/v1/resolve`, 'x'.repeat(4_097))).toMatchObject({
      status: 413,
      body: { error: 'request_too_large' },
    });
  });
});

describe('GET /v1/regions', () => {
  test('names the regions of the cells that take hosts, with an origin each', async () => {
    const response = await fetch(`${director.origin}/v1/regions`);
    const body = regionsReply.parse(await response.json());
    expect(response.status).toBe(200);
    expect(body.regions).toContainEqual({ region: 'us-central1', probeOrigins: expect.arrayContaining([home.url]) });
  });
});
