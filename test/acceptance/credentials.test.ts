import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from './support/fleet.ts';
import { hashOf, newId, newToken } from './support/identity.ts';
import { askResolve, connectInvite, connectPair, installDevice, installDirect } from './support/parts.ts';
import type { Message, RawHost } from './support/raw-host.ts';
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

const DAY_MS = 86_400_000;

function confirm(host: RawHost, basisConnId: string, reqId = newId('confirm')): Promise<Message> {
  return host.request({ type: 'device-resume-confirm', v: 1, reqId, basisConnId });
}

function status(host: RawHost, relayDeviceId: string, reqId: string): Promise<Message> {
  return host.request({ type: 'device-credential-install-status', v: 1, reqId, relayDeviceId });
}

function relayBasis(relayDeviceId: string, basisConnId: string, resumeToken = newToken(), reqId = newId('install')) {
  return {
    type: 'device-credential-install',
    v: 1,
    reqId,
    relayDeviceId,
    newResumeTokenHash: hashOf(resumeToken),
    authorization: { mode: 'relay-basis', basisConnId },
  };
}

describe('install', () => {
  test('S9 install, resolve, resume and confirm: the confirmation renews', async () => {
    const { identity, grant, host } = await fleet.seat();
    const device = await installDevice(host);
    expect(device.version).toBe(1);
    expect(Math.abs(device.resumeExpiresAt - fleet.clock.wallNow() - 30 * DAY_MS)).toBeLessThan(30_000);

    const resolved = await askResolve(fleet.director.origin, identity.relayHostId, device.resumeToken);
    expect(resolved.status).toBe(200);
    expect(Object.keys(resolved.body).sort()).toEqual(['assignmentEpoch', 'cellUrl', 'leaseExpiresAt', 'v']);
    expect(resolved.body).toMatchObject({ v: 1, cellUrl: grant.cellUrl, assignmentEpoch: 1 });

    await fleet.advance(4_000);
    const pair = await connectPair(host, device.resumeToken);
    expect(pair.hello).toMatchObject({ credentialKind: 'resume', acceptedCredentialVersion: 1, acceptedAs: 'current' });
    expect(pair.open).toMatchObject({ kind: 'resume', relayDeviceId: device.relayDeviceId });
    const reply = await confirm(host, pair.open.connId);
    expect(reply).toMatchObject({
      type: 'device-resume-confirmed',
      renewed: true,
      acceptedAs: 'current',
      currentVersion: 1,
    });
    expect(Number(reply.resumeExpiresAt)).toBeGreaterThanOrEqual(device.resumeExpiresAt + 3_000);
  });

  test('S10 a resume that only passes the outer door renews nothing', async () => {
    const { host } = await fleet.seat();
    const device = await installDevice(host);
    await fleet.advance(3_000);
    const first = await connectPair(host, device.resumeToken);
    first.phone.peer.hangUp();
    await first.data.closed;
    const second = await connectPair(host, device.resumeToken);
    expect(second.hello.resumeExpiresAt).toBe(device.resumeExpiresAt);
  });

  test('S12 a replay of an install gives the first answer, and makes no second version', async () => {
    const { host } = await fleet.seat();
    const relayDeviceId = newId('device');
    const pair = await connectInvite(host, relayDeviceId);
    const install = relayBasis(relayDeviceId, pair.open.connId);
    const first = await host.request(install);
    expect(first).toMatchObject({
      type: 'device-credential-installed',
      authorizationMode: 'relay-basis',
      currentVersion: 1,
    });
    expect(await host.request(install)).toEqual(first);
    expect(await host.request({ ...install, newResumeTokenHash: hashOf(newToken()) })).toEqual(first);
    const result = { ...first, type: undefined };
    expect(await status(host, relayDeviceId, install.reqId)).toMatchObject({
      type: 'device-credential-install-status-result',
      state: 'committed',
      result: JSON.parse(JSON.stringify(result)),
    });
  });

  test('S12 two modes that race under one reqId give one identical result', async () => {
    const { host } = await fleet.seat();
    for (let round = 0; round < 5; round += 1) {
      const relayDeviceId = newId('device');
      const pair = await connectInvite(host, relayDeviceId);
      const install = relayBasis(relayDeviceId, pair.open.connId);
      host.send(install);
      host.send({ ...install, authorization: { mode: 'authenticated-direct', directAuthId: newId('direct') } });
      const first = await host.expect('device-credential-installed');
      const second = await host.expect('device-credential-installed');
      expect(second).toEqual(first);
      expect(first.currentVersion).toBe(1);
      pair.phone.peer.hangUp();
      await pair.data.closed;
    }
  });

  test('S13 a commit is visible through install-status after the control died', async () => {
    const { identity, grant, host } = await fleet.seat();
    const relayDeviceId = newId('device');
    const pair = await connectInvite(host, relayDeviceId);
    const resumeToken = newToken();
    const install = relayBasis(relayDeviceId, pair.open.connId, resumeToken);
    host.send(install);
    await until(
      'the install committed',
      () => fleet.database.query('select 1 from relay.install_result where req_id = $1', [install.reqId]),
      (rows) => rows.length === 1,
    );
    host.drop();
    const back = await fleet.dial(identity, grant);
    const seen = await status(back, relayDeviceId, install.reqId);
    expect(seen).toMatchObject({ state: 'committed', result: { reqId: install.reqId, currentVersion: 1 } });
    const resumed = await connectPair(back, resumeToken);
    expect(resumed.hello).toMatchObject({ credentialKind: 'resume' });
  });

  test('install needs an invite basis of the same device and of a live connection', async () => {
    const { host } = await fleet.seat();
    const relayDeviceId = newId('device');
    const pair = await connectInvite(host, relayDeviceId);
    const refused = { type: 'control-error', code: 'invalid_relay_basis' };
    expect(await host.request(relayBasis(newId('device'), pair.open.connId))).toMatchObject(refused);
    expect(await host.request(relayBasis(relayDeviceId, newId('conn')))).toMatchObject(refused);
    pair.phone.peer.hangUp();
    await pair.data.closed;
    expect(await host.request(relayBasis(relayDeviceId, pair.open.connId))).toMatchObject(refused);
  });

  test('a direct authorization is used once, and an expected hash must match', async () => {
    const { host } = await fleet.seat();
    const relayDeviceId = newId('device');
    const token = newToken();
    const directAuthId = newId('direct');
    const authorization = { mode: 'authenticated-direct', directAuthId };
    expect(await installDirect(host, relayDeviceId, token, { authorization })).toMatchObject({
      type: 'device-credential-installed',
      authorizationMode: 'authenticated-direct',
      currentVersion: 1,
    });
    expect(await installDirect(host, relayDeviceId, newToken(), { authorization })).toMatchObject({
      type: 'control-error',
      code: 'invalid_direct_authorization',
    });
    const wrong = { expectedCurrentHash: hashOf(newToken()) };
    expect(await installDirect(host, relayDeviceId, newToken(), wrong)).toMatchObject({
      code: 'current_hash_mismatch',
    });
    const rotated = await installDirect(host, relayDeviceId, newToken(), { expectedCurrentHash: hashOf(token) });
    expect(rotated).toMatchObject({ currentVersion: 2, graceExpiresAt: expect.any(Number) });
    expect(Math.abs(Number(rotated.graceExpiresAt) - fleet.clock.wallNow() - DAY_MS)).toBeLessThan(30_000);
  });

  test('a direct install invalidates the device’s open invites', async () => {
    const { identity, host } = await fleet.seat();
    const relayDeviceId = newId('device');
    const { inviteToken } = await host.createInvite(relayDeviceId);
    expect(await installDirect(host, relayDeviceId, newToken())).toMatchObject({ currentVersion: 1 });
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    expect([4401, 4409]).toContain((await phone.refused()).code);
  });

  test('S17 after a failure inside the database the status is not-found and the same reqId succeeds', async () => {
    const { host } = await fleet.seat();
    const relayDeviceId = newId('device');
    const pair = await connectInvite(host, relayDeviceId);
    const install = relayBasis(relayDeviceId, pair.open.connId);
    await fleet.database.query(
      `create function relay.test_break() returns trigger language plpgsql as $$ begin raise 'injected'; end $$`,
    );
    await fleet.database.query(
      'create trigger test_break before insert on relay.install_result for each row execute function relay.test_break()',
    );
    try {
      expect(await host.request(install)).toMatchObject({ type: 'control-error', reqId: install.reqId });
      expect(await status(host, relayDeviceId, install.reqId)).toMatchObject({ state: 'not-found' });
    } finally {
      await fleet.database.query('drop function relay.test_break() cascade');
    }
    expect(await host.request(install)).toMatchObject({ type: 'device-credential-installed', currentVersion: 1 });
  });
});

describe('confirm', () => {
  async function resumed() {
    const { identity, grant, host } = await fleet.seat();
    const device = await installDevice(host);
    const pair = await connectPair(host, device.resumeToken);
    return { identity, grant, host, device, pair };
  }
  const rotate = (host: RawHost, relayDeviceId: string) => installDirect(host, relayDeviceId, newToken());

  test('S11 a confirmation 31 s after the attach is refused', async () => {
    const { host, pair } = await resumed();
    await fleet.advance(31_000);
    expect(await confirm(host, pair.open.connId)).toMatchObject({
      type: 'control-error',
      code: 'confirmation_not_active',
    });
  });

  test('S10 injected fields in a confirmation are a control-error and renew nothing', async () => {
    const { host, device, pair } = await resumed();
    await fleet.advance(3_000);
    const basisConnId = pair.open.connId;
    for (const extra of [
      { renewed: true },
      { resumeExpiresAt: 9_999_999_999_999 },
      { relayDeviceId: device.relayDeviceId },
    ]) {
      const message = { type: 'device-resume-confirm', v: 1, reqId: newId('confirm'), basisConnId, ...extra };
      host.send(message);
      expect((await host.expect('control-error')).code).not.toBe('');
    }
    pair.phone.peer.hangUp();
    await pair.data.closed;
    const again = await connectPair(host, device.resumeToken);
    expect(again.hello.resumeExpiresAt).toBe(device.resumeExpiresAt);
  });

  test('a confirmation is replayed by its reqId, for its own basis only', async () => {
    const { host, device, pair } = await resumed();
    const reqId = newId('confirm');
    const first = await confirm(host, pair.open.connId, reqId);
    expect(first).toMatchObject({ type: 'device-resume-confirmed', renewed: true });
    expect(await confirm(host, pair.open.connId, reqId)).toEqual(first);
    const other = await connectPair(host, device.resumeToken);
    expect(await confirm(host, other.open.connId, reqId)).toMatchObject({ code: 'confirmation_tuple_mismatch' });
  });

  test('an ended connection vouches for nothing, nor does an invite', async () => {
    const { host, pair } = await resumed();
    pair.phone.peer.hangUp();
    await pair.data.closed;
    expect(await confirm(host, pair.open.connId)).toMatchObject({ code: 'confirmation_not_active' });
    const invited = await connectInvite(host);
    expect(await confirm(host, invited.open.connId)).toMatchObject({ code: 'confirmation_not_active' });
  });

  test('S14 confirmed after one rotation: accepted as grace, not renewed', async () => {
    const { host, device, pair } = await resumed();
    const rotated = await rotate(host, device.relayDeviceId);
    expect(rotated).toMatchObject({ currentVersion: 2 });
    const reply = await confirm(host, pair.open.connId);
    expect(reply).toMatchObject({
      type: 'device-resume-confirmed',
      acceptedAs: 'grace',
      renewed: false,
      currentVersion: 2,
    });
    const again = await connectPair(host, device.resumeToken);
    expect(again.hello).toMatchObject({ acceptedAs: 'grace', acceptedCredentialVersion: 1 });
  });

  test('S14 confirmed after two rotations: reject-retired; after a revoke: reject-revoked', async () => {
    const { host, device, pair } = await resumed();
    await rotate(host, device.relayDeviceId);
    await rotate(host, device.relayDeviceId);
    expect(await confirm(host, pair.open.connId)).toMatchObject({ type: 'control-error', code: 'reject-retired' });

    const other = await resumed();
    const revoke = { type: 'device-revoke', reqId: newId('revoke'), relayDeviceId: other.device.relayDeviceId };
    expect(await other.host.request(revoke)).toMatchObject({ type: 'device-revoked' });
    const reply = await confirm(other.host, other.pair.open.connId);
    expect(reply).toMatchObject({ type: 'control-error', code: 'reject-revoked' });
  });

  test('S14 a rotation after the confirmation keeps the renewed token in grace; a revoke ends it at once', async () => {
    const { identity, host, device, pair } = await resumed();
    expect(await confirm(host, pair.open.connId)).toMatchObject({ renewed: true });
    await rotate(host, device.relayDeviceId);
    expect((await connectPair(host, device.resumeToken)).hello).toMatchObject({ acceptedAs: 'grace' });
    await host.request({ type: 'device-revoke', reqId: newId('revoke'), relayDeviceId: device.relayDeviceId });
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, device.resumeToken);
    expect((await phone.refused()).code).toBe(4409);
    expect(await askResolve(fleet.director.origin, identity.relayHostId, device.resumeToken)).toMatchObject({
      status: 401,
    });
  });
});
