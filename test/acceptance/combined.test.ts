import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { Fleet, type Node } from './support/fleet.ts';
import { type HostIdentity, newIdentity } from './support/identity.ts';
import { askAssign, askResolve, assign, connectPair, installDevice, post } from './support/parts.ts';
import { refusal } from './support/peer.ts';
import { RawHost } from './support/raw-host.ts';
import { RawPhone } from './support/raw-phone.ts';
import { readFull } from './support/seat-feed.ts';

const KEY = 'self-hosted-key-of-a-test-0123456789';

let fleet: Fleet;
let node: Node;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [], directors: 0 });
  node = await fleet.addCombined(KEY);
  await node.start();
  await fleet.heard();
});
afterAll(() => fleet?.stop());
afterEach(() => {
  expect(fleet.problems()).toEqual([]);
});

function askToken({ relayHostId, publicKey }: HostIdentity, key = KEY) {
  const body = { relayHostId, hostPublicKeyB64: Buffer.from(publicKey).toString('base64') };
  return post(node.origin, '/v1/host-token', body, { authorization: `Bearer ${key}` });
}

/** A self-hosted host: its account and profile are what the relay says they are. */
async function selfHosted(): Promise<{ identity: HostIdentity; token: string }> {
  const identity = newIdentity({ userId: 'self-hosted', profileId: node.origin });
  const { body } = await askToken(identity);
  return { identity, token: String(body.relayToken) };
}

test('a host token is traded for the self-hosting key, for 15 minutes, and not kept by caches', async () => {
  const answer = await askToken(newIdentity());
  expect(answer.status).toBe(200);
  expect(Object.keys(answer.body).sort()).toEqual(['expiresAt', 'relayToken']);
  expect(answer.headers.get('cache-control')).toContain('no-store');
  const life = Number(answer.body.expiresAt) - fleet.clock.wallNow();
  expect(life).toBeGreaterThan(14 * 60_000);
  expect(life).toBeLessThanOrEqual(15 * 60_000);
});

test('a wrong key is 401, a body that does not fit its key is refused', async () => {
  const identity = newIdentity();
  expect((await askToken(identity, `${KEY}x`)).status).toBe(401);
  expect((await post(node.origin, '/v1/host-token', {})).status).toBe(401);
  const crossed = await askToken({ ...identity, publicKey: newIdentity().publicKey });
  expect(crossed.status).toBeGreaterThanOrEqual(400);
});

test('director and cell on one origin: assign, control, pair, resume, resolve', async () => {
  const { identity, token } = await selfHosted();
  const grant = await assign(node.origin, token, identity);
  expect(grant).toMatchObject({ cellUrl: node.origin, assignmentEpoch: 1 });
  const host = await fleet.dial(identity, grant, { token });
  const device = await installDevice(host);
  const resolved = await askResolve(node.origin, identity.relayHostId, device.resumeToken);
  expect(resolved).toMatchObject({ status: 200, body: { cellUrl: node.origin, assignmentEpoch: 1 } });
  const pair = await connectPair(host, device.resumeToken);
  pair.phone.peer.send('through one process');
  expect((await pair.data.next()).data.toString()).toBe('through one process');
});

test('epochs are checked as on any cell, and an invite is the cell’s own business', async () => {
  const { identity, token } = await selfHosted();
  const grant = await assign(node.origin, token, identity);
  const wrong = await RawHost.upgrade(identity, { origin: node.origin, token, epoch: 2 });
  wrong.hello({ origin: node.origin, token, epoch: 2 });
  expect((await wrong.peer.close()).code).toBe(4409);
  const host = await fleet.dial(identity, grant, { token });
  const { inviteToken } = await host.createInvite('a-device');
  expect((await connectPair(host, inviteToken)).hello).toMatchObject({ ok: true, credentialKind: 'invite' });
});

test('85 it tells its seats to a director of the fleet, and nobody else', async () => {
  const { identity, token } = await selfHosted();
  const grant = await assign(node.origin, token, identity);
  await fleet.dial(identity, grant, { token });
  const page = await readFull(fleet, node);
  expect(page).toMatchObject({ cellId: 'combined', counts: { seats: page.full.length } });
  expect(page.full.map(({ relayHostId }) => relayHostId)).toContain(identity.relayHostId);
  expect((await fetch(`${node.origin}/v1/admin/cell-seats`)).status).toBe(401);
});

test('a token of an account server means nothing here, and nobody gives orders over HTTP', async () => {
  const identity = newIdentity();
  const foreign = await fleet.issuer.token(identity);
  expect((await askAssign(node.origin, foreign, identity)).status).toBe(401);
  const dial = RawHost.upgrade(identity, { origin: node.origin, token: foreign, epoch: 1 });
  expect((await refusal(dial)).status).toBe(401);
  for (const path of ['drain', 'runtime-status', 'cell-heartbeat']) {
    expect((await post(node.origin, `/v1/admin/${path}`, {})).status).toBe(404);
  }
});

test('a restart needs nothing: the host comes back in a fresh generation, its phone by its token', async () => {
  const { identity, token } = await selfHosted();
  const grant = await assign(node.origin, token, identity);
  const first = await fleet.dial(identity, grant, { token });
  const device = await installDevice(first);
  await node.stop();
  expect((await first.peer.close()).code).toBe(4503);
  await node.start();
  await fleet.heard();
  const again = await assign(node.origin, token, identity);
  expect(again).toMatchObject({ cellUrl: node.origin, assignmentEpoch: 1 });
  const host = await fleet.dial(identity, again, { token });
  expect((await connectPair(host, device.resumeToken)).hello).toMatchObject({ ok: true, credentialKind: 'resume' });
  const stranger = await RawPhone.knock(node.origin, newIdentity().relayHostId, device.resumeToken);
  expect((await stranger.refused()).code).toBe(4409);
});
