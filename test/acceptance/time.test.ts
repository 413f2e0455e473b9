import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from './support/fleet.ts';
import { newId } from './support/identity.ts';
import { connectInvite, installDevice } from './support/parts.ts';
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

describe('a control over time', () => {
  test('it is pinged every 15 s with a time, and closed 4408 after 75 s without a pong', async () => {
    const { host } = await fleet.seat();
    await fleet.advance(46_000);
    expect(host.pings.length).toBe(3);
    expect(host.pings.every((t) => Math.abs(t - fleet.clock.wallNow()) < 60_000)).toBe(true);
    host.mute = true;
    await fleet.advance(60_000);
    expect(host.peer.isOpen).toBe(true);
    await fleet.advance(31_000);
    expect(await host.peer.close()).toMatchObject({ code: 4408, reason: 'control silence timeout' });
  });

  test('an orphan keeps its splices for 30 s, its new phones read 4404, then it ends and its lease with it', async () => {
    const { identity, host } = await fleet.seat();
    const device = await installDevice(host);
    const pair = await connectInvite(host);
    host.drop();
    await host.peer.closed;
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, device.resumeToken);
    expect((await phone.refused()).code).toBe(4404);

    await fleet.advance(25_000);
    pair.phone.peer.send('within the grace');
    expect((await pair.data.next()).data.toString()).toBe('within the grace');
    await fleet.advance(6_000);
    expect((await pair.phone.peer.close()).code).toBe(4408);
    expect((await pair.data.close()).code).toBe(4408);
    await until(
      'the lease released',
      () => fleet.leases(identity),
      (rows) => rows.length === 0,
    );
  });

  test('an expired token leaves splices running but takes no phones and no invites; 60 s later 4401', async () => {
    const { identity, grant, host: first } = await fleet.seat();
    const device = await installDevice(first);
    const token = await fleet.token(identity, { lifeSeconds: 40 });
    const host = await fleet.dial(identity, grant, { token, previous: first.previous });
    const pair = await connectInvite(host);
    await fleet.advance(61_000);

    const phone = await RawPhone.knock(host.origin, identity.relayHostId, device.resumeToken);
    expect((await phone.refused()).code).toBe(4404);
    const reply = await host.request({ type: 'invite-create', reqId: newId('invite'), relayDeviceId: 'd' });
    expect(reply).toMatchObject({ type: 'control-error', code: 'authorization_expired' });
    pair.data.send('still spliced');
    expect((await pair.phone.peer.next()).data.toString()).toBe('still spliced');

    await fleet.advance(60_000);
    expect(await host.peer.close()).toMatchObject({ code: 4401, reason: 'relay authorization expired' });
  });

  test('a refresh after the expiry brings it back', async () => {
    const { identity, grant, host: first } = await fleet.seat();
    const token = await fleet.token(identity, { lifeSeconds: 20 });
    const host = await fleet.dial(identity, grant, { token, previous: first.previous });
    await fleet.advance(46_000);
    const refused = await host.request({ type: 'invite-create', reqId: newId('invite'), relayDeviceId: 'd' });
    expect(refused).toMatchObject({ code: 'authorization_expired' });
    host.send({ type: 'auth-refresh', relayJwt: await fleet.token(identity) });
    expect((await host.createInvite(newId('device'))).maxAttempts).toBe(5);
  });

  test('a proof that takes more than 10 s is closed 4401', async () => {
    const { identity, grant, host } = await fleet.seat();
    host.drop();
    const options = { origin: grant.cellUrl, epoch: grant.assignmentEpoch, token: await fleet.token(identity) };
    const slow = await RawHost.upgrade(identity, options);
    slow.hello(options);
    await slow.challenge();
    await fleet.advance(10_500);
    expect(await slow.peer.close()).toMatchObject({ code: 4401, reason: 'host proof timeout' });
  });

  test('a lease is renewed for as long as the host is there', async () => {
    const { identity, host } = await fleet.seat();
    for (let minutes = 0; minutes < 4; minutes += 1) {
      await fleet.advance(60_000);
      const [lease] = await fleet.database.query(
        `select state, extract(epoch from expires_at - relay.now()) as left from relay.lease
         where user_id = $1 and relay_host_id = $2`,
        [identity.userId, identity.relayHostId],
      );
      expect(lease?.state).toBe('active');
      expect(Number(lease?.left)).toBeGreaterThan(50);
    }
    expect(host.peer.isOpen).toBe(true);
  });
});
