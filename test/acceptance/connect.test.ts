import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from './support/fleet.ts';
import { newId, newIdentity, newToken } from './support/identity.ts';
import { connectInvite, connectPair, installDevice, type Pair } from './support/parts.ts';
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

/** Waits for the invite's row: the cell gives a reservation back after the phone has gone. */
async function inviteState(inviteToken: string, state: string): Promise<void> {
  await until(
    `the invite in ${state}`,
    () => fleet.inviteState(inviteToken),
    (seen) => seen === state,
  );
}

/** Sends each payload one way and expects the same payloads, opcodes and order at the other end. */
async function carries(pair: Pair, payloads: (string | Buffer)[]): Promise<void> {
  for (const [from, to] of [
    [pair.phone.peer, pair.data],
    [pair.data, pair.phone.peer],
  ] as const) {
    for (const payload of payloads) from.send(payload);
    for (const payload of payloads) {
      const frame = await to.next(20_000);
      expect(frame.binary).toBe(typeof payload !== 'string');
      expect(frame.data.equals(Buffer.from(payload as string))).toBe(true);
    }
  }
}

describe('splice', () => {
  test('S9 text and binary go through whole, in order and with their opcodes, both ways, up to 8 MiB', async () => {
    const { host } = await fleet.seat();
    const pair = await connectInvite(host);
    expect(pair.hello).toMatchObject({ ok: true, credentialKind: 'invite' });
    const small = Array.from({ length: 200 }, (_, index) => (index % 2 === 0 ? `text ${index} é` : randomBytes(index)));
    await carries(pair, ['', Buffer.alloc(0), ...small, randomBytes(65_536), randomBytes(8 * 1024 * 1024)]);
  });

  test('the host’s data socket hears nothing from the relay before the phone’s first frame', async () => {
    const { host } = await fleet.seat();
    const pair = await connectInvite(host);
    expect(pair.data.unread()).toEqual([]);
    pair.phone.peer.send('e2ee hello');
    expect((await pair.data.next()).data.toString()).toBe('e2ee hello');
  });

  test('S10 the loss of either side closes the other 4408', async () => {
    const { host } = await fleet.seat();
    const first = await connectInvite(host);
    first.data.drop();
    expect(await first.phone.peer.close()).toMatchObject({ code: 4408, reason: 'peer connection dropped' });
    const second = await connectInvite(host);
    second.phone.peer.drop();
    expect(await second.data.close()).toMatchObject({ code: 4408, reason: 'peer connection dropped' });
  });

  test('8 MiB and one byte ends the pair, and the other side learns it', async () => {
    const { host } = await fleet.seat();
    const pair = await connectInvite(host);
    pair.phone.peer.send(Buffer.alloc(8 * 1024 * 1024 + 1));
    const close = await pair.phone.peer.close(20_000);
    expect([1006, 1009]).toContain(close.code);
    expect((await pair.data.close()).code).toBe(4408);
    expect(host.peer.isOpen).toBe(true);
  });
});

describe('tickets', () => {
  test('S8 a bad ticket is 4401 and leaves the attach usable; a replay of the good one is 4401', async () => {
    const { identity, host } = await fleet.seat();
    const { inviteToken } = await host.createInvite(newId('device'));
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    const open = await host.connOpen();

    const bad = await host.attach({ ...open, connTicket: newToken() });
    expect(await bad.close()).toMatchObject({ code: 4401, reason: 'invalid host data ticket' });
    const otherGeneration = await host.attach(open, { generation: 2 });
    expect(await otherGeneration.close()).toMatchObject({ code: 4401, reason: 'invalid host data ticket' });
    const unknown = await host.attach({ connId: newId('conn'), connTicket: open.connTicket });
    expect(await unknown.close()).toMatchObject({ code: 4401, reason: 'invalid host data ticket' });
    const malformed = await host.attach(open, { extra: 1 });
    expect(await malformed.close()).toMatchObject({ code: 4401, reason: 'invalid host data auth' });

    const good = await host.attach(open);
    expect(await phone.hello()).toMatchObject({ ok: true });
    const replay = await host.attach(open);
    expect(await replay.close()).toMatchObject({ code: 4401, reason: 'invalid host data ticket' });
    phone.peer.send('alive');
    expect((await good.next()).data.toString()).toBe('alive');
  });

  test('a phone whose host never attaches is told 4404 after 10 s', async () => {
    const { identity, host } = await fleet.seat();
    const { inviteToken } = await host.createInvite(newId('device'));
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    const open = await host.connOpen();
    expect(open.attachDeadlineMs).toBe(10_000);
    await fleet.advance(7_000);
    expect(phone.peer.isOpen).toBe(true);
    await fleet.advance(4_000);
    expect(await phone.refused()).toMatchObject({ code: 4404 });
    const late = await host.attach(open);
    expect(await late.close()).toMatchObject({ code: 4401 });
  });
});

describe('who is let in', () => {
  test('S10 without a host the phone reads hello 4404', async () => {
    const { identity, host } = await fleet.seat();
    const device = await installDevice(host);
    host.drop();
    await host.peer.closed;
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, device.resumeToken);
    expect(await phone.refused()).toMatchObject({ code: 4404, reason: 'relay connection rejected' });
  });

  test('an unknown credential is 4409, and so is one of another host', async () => {
    const { identity, host } = await fleet.seat();
    const stranger = await RawPhone.knock(host.origin, identity.relayHostId, newToken());
    expect(await stranger.refused()).toMatchObject({ code: 4409 });
    const other = await fleet.seat();
    const { inviteToken } = await other.host.createInvite(newId('device'));
    const crossed = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    expect(await crossed.refused()).toMatchObject({ code: 4409 });
  });

  test.each([
    ['a credential of the wrong form', { type: 'relay-auth', v: 1, mode: 'connect', credential: 'short' }],
    ['an unknown key', { type: 'relay-auth', v: 1, mode: 'connect', credential: newToken(), more: 1 }],
    ['another mode', { type: 'relay-auth', v: 1, mode: 'listen', credential: newToken() }],
    ['another type', { type: 'host-hello', v: 1 }],
    ['no object', [1]],
  ])('a first frame with %s reads hello 4401, then close 4401', async (_name, frame) => {
    const phone = await RawPhone.upgrade(fleet.cell().origin, newIdentity().relayHostId);
    phone.peer.sendJson(frame);
    expect(await phone.refused()).toMatchObject({ code: 4401, reason: 'invalid relay auth' });
  });

  test('a binary first frame is closed 4401 without a hello', async () => {
    const phone = await RawPhone.upgrade(fleet.cell().origin, newIdentity().relayHostId);
    phone.peer.send(Buffer.from('{}'));
    expect(await phone.peer.close()).toMatchObject({ code: 4401, reason: 'first frame must be text' });
    expect(phone.peer.unread()).toEqual([]);
  });

  test('S15 the ninth connection of a host reads 4429, and one that ends makes room', async () => {
    const { identity, host } = await fleet.seat();
    const device = await installDevice(host);
    const pairs: Pair[] = [];
    for (let count = 0; count < 6; count += 1) pairs.push(await connectPair(host, device.resumeToken));
    const pending = [];
    for (let count = 0; count < 2; count += 1) {
      pending.push(await RawPhone.knock(host.origin, identity.relayHostId, device.resumeToken));
      await host.connOpen();
    }
    const ninth = await RawPhone.knock(host.origin, identity.relayHostId, device.resumeToken);
    expect(await ninth.refused()).toMatchObject({ code: 4429 });
    expect(host.waiting('conn-open')).toEqual([]);

    pairs[0]?.phone.peer.hangUp();
    await pairs[0]?.data.closed;
    const next = await connectPair(host, device.resumeToken);
    expect(next.hello.ok).toBe(true);
  });

  test('S16 an aborted invite is 4401 for its 2 s of cooldown, then usable', async () => {
    const { identity, host } = await fleet.seat();
    const { inviteToken } = await host.createInvite(newId('device'));
    const first = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    await host.connOpen();
    first.peer.drop();
    await first.peer.closed;
    await inviteState(inviteToken, 'cooldown');

    const soon = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    expect(await soon.refused()).toMatchObject({ code: 4401 });
    await fleet.advance(2_100);
    const later = await connectPair(host, inviteToken);
    expect(later.hello).toMatchObject({ ok: true, credentialKind: 'invite' });
  });

  test('S16 the fifth failed attempt spends an invite', async () => {
    const { identity, host } = await fleet.seat();
    const { inviteToken } = await host.createInvite(newId('device'));
    for (let attempt = 1; attempt <= 5; attempt += 1) {
      const phone = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
      await host.connOpen();
      phone.peer.drop();
      await inviteState(inviteToken, attempt < 5 ? 'cooldown' : 'invalidated');
      await fleet.advance(2_100);
    }
    const last = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    expect([4401, 4409]).toContain((await last.refused()).code);
  });

  test('a newer invite of a device ends the older one, and an invite ends with its time', async () => {
    const { identity, host } = await fleet.seat();
    const device = newId('device');
    const old = await host.createInvite(device);
    const fresh = await host.createInvite(device);
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, old.inviteToken);
    expect([4401, 4409]).toContain((await phone.refused()).code);
    const life = fresh.expiresAt - fleet.clock.wallNow();
    expect(life).toBeGreaterThan(560_000);
    expect(life).toBeLessThanOrEqual(575_000);
    const pair = await connectPair(host, fresh.inviteToken);
    expect(pair.hello.ok).toBe(true);
  });

  test('the 31st invite of an account within a minute is refused', async () => {
    const { host } = await fleet.seat();
    for (let count = 0; count < 30; count += 1) await host.createInvite(newId('device'));
    const reply = await host.request({ type: 'invite-create', reqId: 'one-more', relayDeviceId: 'd' });
    expect(reply).toEqual({ type: 'control-error', reqId: 'one-more', code: 'rate_limit_exceeded' });
  });
});
