import { createHash } from 'node:crypto';
import { jwtVerify } from 'jose';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, freePort, type Node } from './support/fleet.ts';
import { newIdentity, newToken } from './support/identity.ts';
import { startIssuer } from './support/issuer.ts';
import { askAssign, askResolve, post } from './support/parts.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{ region: 'us-central1' }, { region: 'asia-east2' }] });
});
afterAll(() => fleet?.stop());

async function get(origin: string, path: string): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`${origin}${path}`, { signal: AbortSignal.timeout(40_000) });
  const text = await response.text();
  const json = response.headers.get('content-type')?.includes('json') === true;
  return { status: response.status, body: json ? JSON.parse(text) : text };
}

async function askWithToken(options: Parameters<typeof fleet.issuer.token>[1]) {
  const identity = newIdentity();
  return askAssign(fleet.director.origin, await fleet.issuer.token(identity, options), identity);
}

describe('health and readiness', () => {
  test('S1 /health says the process runs, /healthz is nothing', async () => {
    for (const { origin } of [fleet.director, fleet.cell()]) {
      expect(await get(origin, '/health')).toEqual({ status: 200, body: { ok: true, connectionCapacityProtocol: 2 } });
      expect((await get(origin, '/healthz')).status).toBe(404);
      expect(await get(origin, '/ready')).toEqual({ status: 200, body: { ok: true } });
    }
  });

  test('S1 with a dead key server at boot /ready is 503 while /health is 200', async () => {
    const dead = { ORCA_RELAY_JWKS_URL: `http://127.0.0.1:${await freePort()}/jwks.json` };
    const nodes: Node[] = [await fleet.addDirector(dead), await fleet.addCell({ region: 'nowhere', env: dead })];
    for (const node of nodes) {
      await node.start();
      expect((await get(node.origin, '/health')).status).toBe(200);
      expect(await get(node.origin, '/ready')).toEqual({ status: 503, body: { error: 'dependency_unavailable' } });
      await node.stop();
    }
  });

  test('S1 a key server that fails after boot leaves the process ready, degraded', async () => {
    const issuer = await startIssuer();
    const node = await fleet.addDirector({
      ORCA_RELAY_JWKS_URL: issuer.jwksUrl,
      ORCA_RELAY_AUTH_ISSUER: issuer.issuer,
    });
    await node.start();
    expect(await get(node.origin, '/ready')).toEqual({ status: 200, body: { ok: true } });
    issuer.setMode('down');
    await fleet.advance(11_000);
    expect(await get(node.origin, '/ready')).toEqual({
      status: 200,
      body: { ok: true, degraded: true, dependency: ['jwks'] },
    });
    await node.stop();
    await issuer.stop();
  });
});

describe('assign', () => {
  test('S2 without a bearer, or with one for another audience, assign answers 401', async () => {
    const identity = newIdentity();
    const body = { v: 1, relayHostId: identity.relayHostId };
    expect(await post(fleet.director.origin, '/v1/assign', body)).toMatchObject({
      status: 401,
      body: { error: 'invalid_token' },
    });
    expect(await askWithToken({ audience: 'orca-cloud' })).toMatchObject({
      status: 401,
      body: { error: 'invalid_token' },
    });
  });

  test.each([
    ['expired', { lifeSeconds: -120 }],
    ['of another issuer', { issuer: 'http://127.0.0.1:1' }],
    ['signed with a key outside the set', { foreignKey: true }],
    ['for another purpose', { claims: { purpose: 'host-data' } }],
    ['without a subject', { without: ['sub'] }],
    ['without a profile', { without: ['prof'] }],
    ['without an expiry', { without: ['exp'] }],
  ])('S2 a token %s is refused with 401', async (_name, options) => {
    expect(await askWithToken(options)).toMatchObject({ status: 401, body: { error: 'invalid_token' } });
  });

  test('S2 a body for another host is 403, a bad body 400, a large one 413', async () => {
    const identity = newIdentity();
    const token = await fleet.token(identity);
    const authorization = `Bearer ${token}`;
    const ask = (body: unknown) => post(fleet.director.origin, '/v1/assign', body, { authorization });
    expect(await ask({ v: 1, relayHostId: newIdentity().relayHostId })).toMatchObject({
      status: 403,
      body: { error: 'host_identity_mismatch' },
    });
    const { relayHostId } = identity;
    const bad = ['{', '[]', 'null', '{"v":1}', { v: 2, relayHostId }, { v: 1, relayHostId, extra: 1 }];
    for (const body of [...bad, { v: 1, relayHostId: 'short' }, { v: 1, relayHostId, reconnect: 'yes' }]) {
      expect(await ask(body), JSON.stringify(body)).toMatchObject({ status: 400, body: { error: 'invalid_request' } });
    }
    expect(await ask({ v: 1, relayHostId, pad: 'x'.repeat(4_096) })).toMatchObject({
      status: 413,
      body: { error: 'request_too_large' },
    });
  });

  test('S4 the answer has exactly its four keys and a lease that its audience can verify', async () => {
    const identity = newIdentity();
    const { status, body } = await askAssign(fleet.director.origin, await fleet.token(identity), identity);
    expect(status).toBe(200);
    expect(Object.keys(body).sort()).toEqual(['assignmentEpoch', 'cellUrl', 'lease', 'v']);
    expect(body).toMatchObject({ v: 1, assignmentEpoch: 1 });
    const cell = fleet.cellAt(String(body.cellUrl));

    const key = Buffer.from(fleet.signingKey);
    const verified = await jwtVerify(String(body.lease), key, {
      algorithms: ['HS256'],
      issuer: fleet.director.origin,
      audience: 'orca-relay-cell',
    });
    expect(verified.payload).toMatchObject({
      sub: identity.userId,
      purpose: 'cell-assignment',
      cellId: cell.id,
      cellUrl: cell.origin,
      assignmentEpoch: 1,
      relayHostId: identity.relayHostId,
    });
    const life = Number(verified.payload.exp) - fleet.clock.wallNow() / 1000;
    expect(life).toBeGreaterThan(280);
    expect(life).toBeLessThanOrEqual(301);
    expect(verified.protectedHeader.kid).toBe(`k1-${createHash('sha256').update(key).digest('hex').slice(0, 8)}`);
  });

  test('a preferred region is honoured, and asking again changes nothing', async () => {
    const identity = newIdentity();
    const token = await fleet.token(identity);
    const first = await askAssign(fleet.director.origin, token, identity, { preferredRegion: 'asia-east2' });
    expect(first.status).toBe(200);
    expect(fleet.cellAt(String(first.body.cellUrl)).id).toBe('c2');
    await fleet.advance(6_000);
    const again = await askAssign(fleet.director.origin, token, identity, {
      reconnect: true,
      regionCorrection: { v: 1, action: 'issue-window' },
    });
    expect(again.body).toMatchObject({ cellUrl: first.body.cellUrl, assignmentEpoch: 1 });
  });

  test('a region report of a host without a row is 409, with one it answers the assignment', async () => {
    const identity = newIdentity();
    const token = await fleet.token(identity);
    const report = {
      regionCorrection: {
        v: 1,
        action: 'report',
        generation: 1,
        assignmentEpoch: 1,
        policyVersion: 1,
        outcome: 'conclusive',
        measurements: { 'us-central1': 20, 'asia-east2': 180.5 },
      },
    };
    expect(await askAssign(fleet.director.origin, token, identity, report)).toMatchObject({
      status: 409,
      body: { error: 'assignment_not_found' },
    });
    await fleet.advance(6_000);
    const grant = await askAssign(fleet.director.origin, token, identity);
    await fleet.advance(6_000);
    const reported = await askAssign(fleet.director.origin, token, identity, report);
    expect(reported).toMatchObject({ status: 200, body: { cellUrl: grant.body.cellUrl, assignmentEpoch: 1 } });
  });
});

describe('resolve and regions', () => {
  test('an unknown resume token is 401, a bad body 400, a large one 413', async () => {
    const { relayHostId } = newIdentity();
    const { origin } = fleet.director;
    expect(await askResolve(origin, relayHostId, newToken())).toMatchObject({
      status: 401,
      body: { error: 'invalid_credential' },
    });
    const bad = [
      '{',
      { v: 1, relayHostId },
      { v: 1, relayHostId, resumeToken: 'x' },
      { v: 1, relayHostId, resumeToken: newToken(), more: 1 },
    ];
    for (const body of bad) {
      expect(await post(origin, '/v1/resolve', body)).toMatchObject({
        status: 400,
        body: { error: 'invalid_request' },
      });
    }
    expect(await post(origin, '/v1/resolve', `{"pad":"${'x'.repeat(4_096)}"}`)).toMatchObject({ status: 413 });
  });

  test('regions names each region once with its probe origins', async () => {
    const { status, body } = await get(fleet.director.origin, '/v1/regions');
    expect(status).toBe(200);
    expect(body).toEqual({
      v: 1,
      regions: expect.arrayContaining([
        { region: 'us-central1', probeOrigins: [fleet.cell(0).origin] },
        { region: 'asia-east2', probeOrigins: [fleet.cell(1).origin] },
      ]),
    });
  });

  test('S18 a cell answers 404 director_only on the routes of a director', async () => {
    const { origin } = fleet.cell();
    const missing = { status: 404, body: { error: 'director_only' } };
    expect(await get(origin, '/v1/regions')).toEqual(missing);
    expect(await post(origin, '/v1/assign', {})).toMatchObject(missing);
    expect(await post(origin, '/v1/resolve', {})).toMatchObject(missing);
  });
});
