import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, type Seated } from '../acceptance/support/fleet.ts';
import { connectInvite } from '../acceptance/support/parts.ts';
import { type HostDial, RawHost } from '../acceptance/support/raw-host.ts';
import { RawPhone } from '../acceptance/support/raw-phone.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { until } from '../acceptance/support/wait.ts';
import { holdActivations } from '../support/held-activations.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet?.stop());
afterEach(() => {
  expect(fleet.problems()).toEqual([]);
});

const metric = async (name: string, labels: Record<string, string> = {}) =>
  total(await scrape(fleet.cell().origin), name, labels);

async function dialOf({ identity, grant }: Seated, over: Partial<HostDial> = {}): Promise<HostDial> {
  const token = await fleet.token(identity);
  return { origin: grant.cellUrl, epoch: grant.assignmentEpoch, token, now: () => fleet.clock.wallNow(), ...over };
}

/** Upgrade and hello; the challenge is there, the answer is the test's. */
async function challenged(seated: Seated, dial: HostDial) {
  const host = await RawHost.upgrade(seated.identity, dial);
  host.hello(dial);
  const { frame, opened } = await host.challenge();
  const answer = () =>
    host.send({ type: 'host-challenge-ack', challengeId: frame.challengeId, proofB64: opened.proofB64 });
  return { host, answer };
}

async function lastWord({ identity }: Seated): Promise<unknown> {
  const text = 'select last_close_reason from relay.assignment where user_id = $1';
  return (await fleet.database.query(text, [identity.userId]))[0]?.last_close_reason;
}

describe('two sockets of one host (04, host control)', () => {
  test('the later activation wins, whichever socket was opened first', async () => {
    const seated = await fleet.seat();
    const dial = await dialOf(seated);
    const early = await challenged(seated, dial);
    const late = await challenged(seated, dial);
    late.answer();
    expect(await late.host.expect('host-hello-ack')).toMatchObject({ generation: 2 });
    expect(await seated.host.peer.close()).toMatchObject({ code: 4408, reason: 'replaced by a newer generation' });
    early.answer();
    expect(await early.host.expect('host-hello-ack')).toMatchObject({ generation: 3 });
    expect(await late.host.peer.close()).toMatchObject({ code: 4408, reason: 'replaced by a newer generation' });
    expect(await connectInvite(Object.assign(early.host, { ack: { generation: 3 } }))).toBeDefined();
  });

  test('a rebind whose session has ended meanwhile is superseded, 4408', async () => {
    const seated = await fleet.seat();
    const { host, answer } = await challenged(seated, await dialOf(seated, { previous: seated.host.previous }));
    seated.host.peer.hangUp(1000, 'signed-out');
    await until(
      'the seat given up',
      () => fleet.leases(seated.identity),
      (leases) => leases.length === 0,
    );
    answer();
    expect(await host.peer.close()).toMatchObject({ code: 4408, reason: 'control activation superseded' });
  });

  test('one that goes away while the database seats it takes nothing from the other', async () => {
    const seated = await fleet.seat();
    const { host, answer } = await challenged(seated, await dialOf(seated));
    const held = await holdActivations(fleet.database);
    answer();
    await held.waiting();
    host.drop();
    await host.peer.closed;
    await held.letGo();
    await until(
      'the unused generation given back',
      () => fleet.leases(seated.identity),
      (leases) => leases.length === 0,
    );
    await fleet.advance(17_000, 4_000);
    await until(
      'the lease taken again for the control that is there',
      () => fleet.leases(seated.identity),
      ([lease]) => lease?.generation === 1 && lease.state === 'active',
    );
    expect(seated.host.peer.isOpen).toBe(true);
  });

  test('a session that signs out while it is being continued leaves no lease, and its last word stands', async () => {
    const seated = await fleet.seat();
    const { host, answer } = await challenged(seated, await dialOf(seated, { previous: seated.host.previous }));
    const held = await holdActivations(fleet.database);
    answer();
    await held.waiting();
    seated.host.peer.hangUp(1000, 'signed-out');
    await until(
      'its own lease given up',
      () => fleet.leases(seated.identity),
      (leases) => leases.length === 0,
    );
    await held.letGo();
    expect(await host.peer.close()).toMatchObject({ code: 4408, reason: 'control activation superseded' });
    await until(
      'the lease given up once more',
      async () => ({ leases: await fleet.leases(seated.identity), word: await lastWord(seated) }),
      ({ leases, word }) => leases.length === 0 && word === 'signed-out',
    );
  });
});

describe('a dependency that fails (wire 1.6)', () => {
  test('at the hello: 4429 and a retry works', async () => {
    const seated = await fleet.seat();
    await fleet.database.query('alter function relay_v1.verify_seat rename to verify_seat_away');
    const dial = await dialOf(seated);
    const host = await RawHost.upgrade(seated.identity, dial);
    host.hello(dial);
    expect(await host.peer.close()).toMatchObject({ code: 4429, reason: 'relay temporarily unavailable' });
    await fleet.database.query('alter function relay_v1.verify_seat_away rename to verify_seat');
    expect((await fleet.dial(seated.identity, seated.grant)).ack?.generation).toBe(2);
  });

  test('at the activation: 4429, and the control that is there stays', async () => {
    const seated = await fleet.seat();
    const { host, answer } = await challenged(seated, await dialOf(seated));
    await fleet.database.query('alter function relay_v1.activate_control rename to activate_control_away');
    answer();
    expect(await host.peer.close()).toMatchObject({ code: 4429, reason: 'relay temporarily unavailable' });
    await fleet.database.query('alter function relay_v1.activate_control_away rename to activate_control');
    expect(seated.host.peer.isOpen).toBe(true);
    expect((await seated.host.createInvite('device')).maxAttempts).toBe(5);
  });

  test('of a command: control-error, and the channel goes on', async () => {
    const { host } = await fleet.seat();
    await fleet.database.query('alter function relay_v1.create_invite rename to create_invite_away');
    const request = { type: 'invite-create', reqId: 'r1', relayDeviceId: 'device' };
    expect(await host.request(request)).toEqual({
      type: 'control-error',
      reqId: 'r1',
      code: 'relay_temporarily_unavailable',
    });
    await fleet.database.query('alter function relay_v1.create_invite_away rename to create_invite');
    expect(await host.request({ ...request, reqId: 'r2' })).toMatchObject({ type: 'invite-created', reqId: 'r2' });
  });

  test('when a phone knocks: 4429, and a retry works', async () => {
    const { host } = await fleet.seat();
    const { inviteToken } = await host.createInvite('device');
    await fleet.database.query('alter function relay_v1.open_connection rename to open_connection_away');
    const phone = await RawPhone.knock(host.origin, host.identity.relayHostId, inviteToken);
    expect(await phone.refused()).toMatchObject({ code: 4429, reason: 'relay temporarily unavailable' });
    await fleet.database.query('alter function relay_v1.open_connection_away rename to open_connection');
    const again = await RawPhone.knock(host.origin, host.identity.relayHostId, inviteToken);
    await host.attach(await host.connOpen());
    expect((await again.hello()).ok).toBe(true);
  });
});

describe('more than a host may ask at once', () => {
  test('the 33rd command in flight is refused by name, the others are answered', async () => {
    const { host } = await fleet.seat();
    const ids = Array.from({ length: 40 }, (_, index) => `req-${index}`);
    for (const reqId of ids) host.send({ type: 'device-revoke', reqId, relayDeviceId: 'nobody' });
    const answers = await Promise.all(ids.map(() => host.expect('control-error')));
    const codes = answers.map(({ code }) => code);
    expect(codes.filter((code) => code === 'credential_not_found').length).toBeGreaterThanOrEqual(32);
    expect(codes.every((code) => code === 'credential_not_found' || code === 'too_many_requests_in_flight')).toBe(true);
  });
});

test('the lease a host echoes is looked at, and decides nothing', async () => {
  const seated = await fleet.seat();
  const seen = (found: string) => metric('orca_relay_assignment_lease_shadow_total', { class: found });
  const counted = (found: string, times: number) =>
    until(
      `${times} × ${found}`,
      () => seen(found),
      (count) => count === times,
    );
  const before = await seen('bad-signature');
  const header = (lease: string) => ({ headers: { 'x-orca-relay-assignment-lease': lease } });
  await fleet.dial(seated.identity, seated.grant, header('nonsense'));
  await counted('bad-signature', before + 1);
  const valid = await seen('valid');
  await fleet.dial(seated.identity, seated.grant, header(seated.grant.lease));
  await counted('valid', valid + 1);
});
