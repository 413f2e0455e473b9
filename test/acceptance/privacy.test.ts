import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from './support/fleet.ts';
import { askResolve, connectPair, installDevice } from './support/parts.ts';
import { RawPhone } from './support/raw-phone.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ processes: true });
});
afterAll(() => fleet?.stop());

test('S23 metrics, the fleet view and the logs carry no identities, tokens or keys', async () => {
  const { identity, grant, host } = await fleet.seat();
  const device = await installDevice(host);
  const { inviteToken } = await host.createInvite('another-device');
  await connectPair(host, device.resumeToken);
  await askResolve(fleet.director.origin, identity.relayHostId, device.resumeToken);
  const stranger = await RawPhone.knock(host.origin, identity.relayHostId, 'x'.repeat(43));
  await stranger.refused();
  const moved = await RawPhone.knock(fleet.director.origin, identity.relayHostId, inviteToken);
  await moved.answer();
  host.drop();

  const secrets = {
    userId: identity.userId,
    relayHostId: identity.relayHostId,
    profileId: identity.profileId,
    device: device.relayDeviceId,
    resumeToken: device.resumeToken,
    inviteToken,
    lease: grant.lease,
    controlResumeSecret: String(host.ack?.controlResumeSecret),
    signingKey: fleet.signingKey,
    databasePassword: new URL(fleet.database.urlFor('relay_cell')).password,
  };
  const shown: Record<string, string> = {};
  for (const node of [fleet.director, fleet.cell()]) {
    shown[`${node.id} metrics`] = await (await fetch(`${node.origin}/metrics`)).text();
    shown[`${node.id} log`] = node.output();
  }
  shown['view fleet'] = JSON.stringify(await fleet.database.query('select * from relay_v1.fleet'));
  for (const [where, text] of Object.entries(shown)) {
    expect(text.length, where).toBeGreaterThan(50);
    const leaked = Object.entries(secrets).filter(([, secret]) => secret !== '' && text.includes(secret));
    expect(
      leaked.map(([name]) => name),
      where,
    ).toEqual([]);
  }
});

test('S21 on SIGTERM a host reads drain 0, then 4503, and the process ends well', async () => {
  const { identity, host } = await fleet.seat();
  const device = await installDevice(host);
  const pair = await connectPair(host, device.resumeToken);
  const started = performance.now();
  fleet.cell().signal('SIGTERM');
  expect(await host.expect('drain')).toEqual({ type: 'drain', graceMs: 0, recovery: 'resolve-director' });
  expect((await host.peer.close()).code).toBe(4503);
  expect((await pair.phone.peer.close()).code).toBe(4503);
  expect((await pair.data.close()).code).toBe(4503);
  expect(await fleet.cell().exited()).toEqual({ code: 0, signal: null });
  expect(performance.now() - started).toBeLessThan(5_000);
  expect(await fleet.leases(identity)).toEqual([]);

  fleet.director.signal('SIGTERM');
  expect(await fleet.director.exited()).toEqual({ code: 0, signal: null });
});
