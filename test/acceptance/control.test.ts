import nacl from 'tweetnacl';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from './support/fleet.ts';
import { newId, newIdentity, newToken } from './support/identity.ts';
import { assign, connectInvite, connectPair, installDevice } from './support/parts.ts';
import { refusal } from './support/peer.ts';
import { hostIdOf } from './support/proof.ts';
import { RawHost } from './support/raw-host.ts';
import { RawPhone } from './support/raw-phone.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet?.stop());
afterEach(() => {
  expect(fleet.problems()).toEqual([]);
});

const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64');

async function knockingHost(hello: Record<string, unknown> = {}, organizationId: string | null = null) {
  const { identity, grant, host } = await fleet.seat(newIdentity({ organizationId }));
  host.drop();
  const options = { origin: grant.cellUrl, epoch: grant.assignmentEpoch, token: await fleet.token(identity), hello };
  const knocking = await RawHost.upgrade(identity, options);
  return { identity, grant, options, knocking };
}

describe('upgrade', () => {
  test('S2 control without a good bearer is 401', async () => {
    const identity = newIdentity();
    const url = fleet.cell().origin;
    for (const token of ['nonsense', await fleet.issuer.token(identity, { audience: 'orca-cloud' })]) {
      const refused = await refusal(RawHost.upgrade(identity, { origin: url, token, epoch: 1 }));
      expect(refused.status).toBe(401);
    }
    const headers = { authorization: `Basic ${newToken()}` };
    const options = { origin: url, token: '', epoch: 1, headers };
    expect((await refusal(RawHost.upgrade(identity, options))).status).toBe(401);
  });

  test('control on a director is 404', async () => {
    const identity = newIdentity();
    const options = { origin: fleet.director.origin, token: await fleet.token(identity), epoch: 1 };
    expect((await refusal(RawHost.upgrade(identity, options))).status).toBe(404);
  });
});

describe('key proof', () => {
  test('a host proves with an organization in its token, and its first generation is 1', async () => {
    const { host } = await fleet.seat(newIdentity({ organizationId: 'org-7' }));
    expect(host.ack).toMatchObject({ generation: 1, activeConnIds: [], pendingConns: [] });
    const hours = (Number(host.ack?.leaseExpiresAt) - fleet.clock.wallNow()) / 3_600_000;
    expect(hours).toBeGreaterThan(5.4);
    expect(hours).toBeLessThan(6.6);
  });

  test('S6 a foreign key is closed 4401', async () => {
    const foreign = nacl.box.keyPair();
    const { knocking, options } = await knockingHost({ hostPublicKeyB64: base64(foreign.publicKey) });
    knocking.hello(options);
    expect(await knocking.peer.close()).toMatchObject({ code: 4401, reason: 'host key binding mismatch' });
  });

  test('a key of low order, with which everybody shares the secret, is closed 4401', async () => {
    const weak = new Uint8Array(32);
    const identity = newIdentity({ publicKey: weak, relayHostId: hostIdOf(weak) });
    const token = await fleet.token(identity);
    const grant = await assign(fleet.director.origin, token, identity);
    const options = { origin: grant.cellUrl, epoch: grant.assignmentEpoch, token, hello: {} };
    const knocking = await RawHost.upgrade(identity, options);
    knocking.hello(options);
    expect(await knocking.peer.close()).toMatchObject({ code: 4401, reason: 'invalid host public key' });
  });

  test('S6 a host id that is not the token’s is closed 4401', async () => {
    const other = newIdentity();
    const { knocking, options } = await knockingHost({
      relayHostId: other.relayHostId,
      hostPublicKeyB64: base64(other.publicKey),
    });
    knocking.hello(options);
    expect((await knocking.peer.close()).code).toBe(4401);
  });

  test.each([
    ['a key that is not canonical', { hostPublicKeyB64: `${'A'.repeat(42)}B=` }],
    ['a key of another length', { hostPublicKeyB64: base64(new Uint8Array(31)) }],
    ['an unknown key', { extra: true }],
    ['another version', { v: 2 }],
    ['a fractional epoch', { assignmentEpoch: 1.5 }],
    ['no app version', { appVersion: '' }],
    ['a secret that is no token', { controlResumeSecret: 'abc', previousGeneration: 1 }],
  ])('a hello with %s is closed 4401', async (_name, hello) => {
    const { knocking, options } = await knockingHost(hello);
    knocking.hello(options);
    const close = await knocking.peer.close();
    expect(close.code).toBe(4401);
    expect(['invalid host hello', 'invalid host public key']).toContain(close.reason);
  });

  test('a wrong proof, another challenge’s id and a message before the hello are closed 4401', async () => {
    const first = await knockingHost();
    first.knocking.hello(first.options);
    const { frame } = await first.knocking.challenge();
    first.knocking.send({
      type: 'host-challenge-ack',
      challengeId: frame.challengeId,
      proofB64: base64(nacl.randomBytes(32)),
    });
    expect(await first.knocking.peer.close()).toMatchObject({ code: 4401, reason: 'invalid host proof' });

    const second = await knockingHost();
    second.knocking.hello(second.options);
    const { opened } = await second.knocking.challenge();
    second.knocking.send({ type: 'host-challenge-ack', challengeId: newId('other'), proofB64: opened.proofB64 });
    expect((await second.knocking.peer.close()).code).toBe(4401);

    const third = await knockingHost();
    third.knocking.send({ type: 'pong', t: 1 });
    expect(await third.knocking.peer.close()).toMatchObject({ code: 4401, reason: 'invalid host hello' });
  });

  test('S6 S18 every epoch but the row’s is closed 4409, without a URL', async () => {
    for (const epoch of [0, 2, 7]) {
      const { knocking, options } = await knockingHost({ assignmentEpoch: epoch });
      knocking.hello(options);
      const close = await knocking.peer.close();
      expect(close.code).toBe(4409);
      expect(close.reason).toBe('wrong assignment epoch');
      expect(close.reason).not.toMatch(/[/:]/);
    }
  });

  test('a host that was never assigned is closed 4409', async () => {
    const identity = newIdentity();
    const options = { origin: fleet.cell().origin, epoch: 1, token: await fleet.token(identity) };
    const host = await RawHost.upgrade(identity, options);
    host.hello(options);
    expect((await host.peer.close()).code).toBe(4409);
  });

  test('a binary hello and broken JSON are closed 4401 with their reasons', async () => {
    const binary = await knockingHost();
    binary.knocking.peer.send(Buffer.from('{}'));
    expect(await binary.knocking.peer.close()).toMatchObject({ code: 4401, reason: 'host hello must be text' });
    const broken = await knockingHost();
    broken.knocking.peer.send('{"type":');
    expect((await broken.knocking.peer.close()).code).toBe(4401);
  });
});

describe('rebind and new generation', () => {
  test('S5 a rebind keeps generation, secret, splices and pending connections; the old socket reads 4408', async () => {
    const { identity, grant, host } = await fleet.seat();
    const pair = await connectInvite(host);
    const { inviteToken } = await host.createInvite(newId('device'));
    const waiting = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    const pending = await host.connOpen();

    const again = await fleet.dial(identity, grant, { previous: host.previous });
    expect(await host.peer.close()).toMatchObject({ code: 4408, reason: 'control rebound' });
    expect(again.ack).toMatchObject({
      generation: 1,
      controlResumeSecret: host.ack?.controlResumeSecret,
      activeConnIds: [pair.open.connId],
      pendingConns: [{ connId: pending.connId, connTicket: pending.connTicket }],
    });

    pair.phone.peer.send('still there');
    expect((await pair.data.next()).data.toString()).toBe('still there');
    const data = await again.attach(pending);
    expect(await waiting.hello()).toMatchObject({ ok: true, credentialKind: 'invite' });
    data.drop();
  });

  test('S7 pending connections carry details only for a host that advertised them', async () => {
    const { identity, grant, host } = await fleet.seat();
    const device = newId('device');
    const { inviteToken } = await host.createInvite(device);
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    const { connId, connTicket } = await host.connOpen();

    const plain = await fleet.dial(identity, grant, { previous: host.previous });
    expect(plain.ack?.pendingConns).toEqual([{ connId, connTicket }]);
    const capabilities = 'something-else, pending-conn-details';
    const detailed = await fleet.dial(identity, grant, { previous: plain.previous, capabilities });
    expect(detailed.ack?.pendingConns).toEqual([{ connId, connTicket, kind: 'invite', relayDeviceId: device }]);
    phone.peer.drop();
  });

  test('S5 a new generation closes the old one, its splices and its pending phones, and rejects its basis', async () => {
    const { identity, grant, host } = await fleet.seat();
    const device = await installDevice(host);
    const pair = await connectPair(host, device.resumeToken);
    const { inviteToken } = await host.createInvite(newId('device'));
    const pending = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    await host.connOpen();

    const fresh = await fleet.dial(identity, grant);
    expect(fresh.ack).toMatchObject({ generation: 2, activeConnIds: [], pendingConns: [] });
    expect(fresh.ack?.controlResumeSecret).not.toBe(host.ack?.controlResumeSecret);
    expect((await host.peer.close()).code).toBe(4408);
    expect((await pair.phone.peer.close()).code).toBe(4408);
    expect((await pair.data.close()).code).toBe(4408);
    expect((await pending.refused()).code).toBe(4408);

    const confirm = { type: 'device-resume-confirm', v: 1, reqId: newId('confirm'), basisConnId: pair.open.connId };
    expect(await fresh.request(confirm)).toMatchObject({ type: 'control-error', code: 'confirmation_not_active' });
  });

  test('an orphan is picked up by its secret within the grace, and its splice never stopped', async () => {
    const { identity, grant, host } = await fleet.seat();
    const pair = await connectInvite(host);
    host.drop();
    pair.phone.peer.send('while orphaned');
    expect((await pair.data.next()).data.toString()).toBe('while orphaned');
    const back = await fleet.dial(identity, grant, { previous: host.previous });
    expect(back.ack).toMatchObject({ generation: 1, activeConnIds: [pair.open.connId] });
  });

  test('an unknown secret gets a fresh generation and resumeRequested 0', async () => {
    const { identity, grant, host } = await fleet.seat();
    const stranger = await RawHost.upgrade(identity, {
      origin: grant.cellUrl,
      epoch: grant.assignmentEpoch,
      token: await fleet.token(identity),
    });
    const previous = { generation: 1, secret: newToken() };
    const options = { origin: grant.cellUrl, epoch: grant.assignmentEpoch, token: '', previous };
    stranger.hello(options);
    const { frame, opened } = await stranger.challenge();
    expect(opened.fields.resumeRequested[0]).toBe(0);
    stranger.send({ type: 'host-challenge-ack', challengeId: frame.challengeId, proofB64: opened.proofB64 });
    expect(await stranger.expect('host-hello-ack')).toMatchObject({ generation: 2 });
    expect((await host.peer.close()).code).toBe(4408);
  });
});

describe('messages after activation', () => {
  test('an unknown type is a control-error, broken JSON closes 4401, binary is ignored', async () => {
    const { host } = await fleet.seat();
    host.send({ type: 'no-such-thing', reqId: 'r-1' });
    expect(await host.expect('control-error')).toMatchObject({ code: 'unknown_control_message' });
    host.peer.send(Buffer.from('anything'));
    expect(await host.createInvite(newId('device'))).toMatchObject({ maxAttempts: 5 });
    host.peer.send('{"type":"pong"');
    expect(await host.peer.close()).toMatchObject({ code: 4401, reason: 'invalid control JSON' });
  });

  test('an auth-refresh of the same identity is accepted, of another closes 4401', async () => {
    const { identity, host } = await fleet.seat();
    host.send({ type: 'auth-refresh', relayJwt: await fleet.token(identity, { lifeSeconds: 600 }) });
    expect((await host.createInvite(newId('device'))).inviteToken).toMatch(/^[\w-]{43}$/);
    host.send({ type: 'auth-refresh', relayJwt: await fleet.token({ ...identity, profileId: 'another' }) });
    expect(await host.peer.close()).toMatchObject({ code: 4401, reason: 'refresh identity changed' });
  });

  test('a WebSocket ping is answered', async () => {
    const { host } = await fleet.seat();
    const pong = new Promise((resolve) => host.peer.socket.once('pong', resolve));
    host.peer.socket.ping('x');
    await pong;
  });

  test('S18 the lease counts the control 1 and a splice 2 more', async () => {
    const { identity, host } = await fleet.seat();
    const pair = await connectInvite(host);
    await fleet.advance(32_000, 4_000);
    await until(
      'a renewal with the splice in it',
      () => fleet.leases(identity),
      (rows) => rows.length === 1 && rows[0]?.units === 3 && rows[0]?.state === 'active',
    );
    pair.phone.peer.hangUp();
    await pair.data.closed;
    await fleet.advance(46_000, 4_000);
    await until(
      'a renewal without it',
      () => fleet.leases(identity),
      (rows) => rows[0]?.units === 1,
    );
  });
});
