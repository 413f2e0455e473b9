import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../acceptance/support/fleet.ts';
import { newId, newIdentity, newToken } from '../acceptance/support/identity.ts';
import { connectInvite, connectPair, installDevice } from '../acceptance/support/parts.ts';
import { Peer } from '../acceptance/support/peer.ts';
import { RawHost } from '../acceptance/support/raw-host.ts';
import { RawPhone } from '../acceptance/support/raw-phone.ts';
import { until } from '../acceptance/support/wait.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet?.stop());
/** Whatever was thrown at it: both processes answer, and a host with its phone still gets through. */
afterEach(async () => {
  for (const { origin } of [fleet.director, fleet.cell()]) {
    expect((await fetch(`${origin}/health`)).status).toBe(200);
  }
  const { host } = await fleet.seat();
  const pair = await connectInvite(host);
  pair.phone.peer.send('alive');
  expect((await pair.data.next()).data.toString()).toBe('alive');
  host.peer.hangUp(1000, 'signed-out');
});

/** Raw bytes over TCP; resolves with what came back once the other end closes, or after a moment. */
function speak(origin: string, bytes: string | Buffer, thenClose = false): Promise<string> {
  const { hostname, port } = new URL(origin);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname, () => {
      socket.write(bytes);
      if (thenClose) socket.destroy();
    });
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(answer));
    setTimeout(() => socket.destroy(), 150);
  });
}

describe('HTTP', () => {
  test.each([
    ['nonsense', 'hello\r\n\r\n'],
    ['a half request', 'GET /health HTT'],
    ['a bad escape', 'GET /%E0%A4%A HTTP/1.1\r\nHost: x\r\n\r\n'],
    ['a huge header', `GET /health HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(100_000)}\r\n\r\n`],
    ['a body that never comes', 'POST /v1/assign HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{'],
    ['a negative length', 'POST /v1/resolve HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n'],
    ['a huge announced body', 'POST /v1/resolve HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{}'],
    ['another method', 'DELETE /v1/assign HTTP/1.1\r\nHost: x\r\n\r\n'],
    [
      'an upgrade without a key',
      'GET /v1/host/control HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n',
    ],
    ['bytes', randomBytes(2_000)],
  ])('%s', async (_name, bytes) => {
    for (const { origin } of [fleet.director, fleet.cell()]) await speak(origin, bytes);
  });

  test('a caller that hangs up while its token is checked or its answer is made', async () => {
    const identity = newIdentity();
    const token = await fleet.token(identity);
    const body = JSON.stringify({ v: 1, relayHostId: identity.relayHostId });
    const assign = `POST /v1/assign HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    const key = randomBytes(16).toString('base64');
    const upgrade = `GET /v1/host/control HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n\r\n`;
    for (let round = 0; round < 20; round += 1) {
      await Promise.all([speak(fleet.director.origin, assign, true), speak(fleet.cell().origin, upgrade, true)]);
    }
  });
});

describe('frames', () => {
  test('a control frame over 1 MiB ends that host alone', async () => {
    const { host } = await fleet.seat();
    host.peer.send('x'.repeat(1024 * 1024 + 1));
    expect([1006, 1009]).toContain((await host.peer.close()).code);
  });

  test('a first frame of 8 MiB and one byte ends that phone alone', async () => {
    const phone = await RawPhone.upgrade(fleet.cell().origin, newIdentity().relayHostId);
    phone.peer.send('x'.repeat(8 * 1024 * 1024 + 1));
    expect([1006, 1009]).toContain((await phone.peer.close(20_000)).code);
  });

  test('text that is not UTF-8 ends its sender', async () => {
    const phone = await RawPhone.upgrade(fleet.cell().origin, newIdentity().relayHostId);
    phone.peer.socket.send(Buffer.from([0xff, 0xfe, 0xfd]), { binary: false });
    expect([1006, 1007]).toContain((await phone.peer.close()).code);
  });

  test('a second frame hot on the heels of the first is dropped or carried, never answered by a crash', async () => {
    const { identity, host } = await fleet.seat();
    const device = await installDevice(host);
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, device.resumeToken);
    phone.peer.send('too early');
    phone.peer.send(Buffer.alloc(100_000));
    const open = await host.connOpen().catch(() => null);
    if (open === null) expect(phone.peer.closeSeen).not.toBeNull();
    else await host.attach(open);
    phone.peer.drop();
  });

  test('a data socket whose first frame is anything but its ticket is closed 4401', async () => {
    for (const frame of ['', 'x', '[]', '{"type":"relay-auth"}', Buffer.from('{}')]) {
      const data = await Peer.dial(`${fleet.cell().origin}/v1/host/data/${newId('conn')}`);
      data.send(frame);
      expect(await data.close()).toMatchObject({ code: 4401 });
      expect(data.unread()).toEqual([]);
    }
  });

  test('random JSON on every channel is answered by an error, or by a close from the closed set', async () => {
    const { identity, grant, host } = await fleet.seat();
    const codes = new Set([4401, 4404, 4408, 4409, 4429, 4503, 1006]);
    const json = fc.oneof(
      fc.jsonValue(),
      fc.record({
        type: fc.constantFrom('relay-auth', 'host-hello', 'ping', '__proto__'),
        v: fc.jsonValue(),
        credential: fc.jsonValue(),
      }),
    );
    await fc.assert(
      fc.asyncProperty(json, async (value) => {
        const text = JSON.stringify(value);
        const phone = await RawPhone.upgrade(grant.cellUrl, identity.relayHostId);
        phone.peer.send(text);
        expect(codes.has((await phone.peer.close()).code)).toBe(true);
        const knocking = await RawHost.upgrade(identity, {
          origin: grant.cellUrl,
          epoch: 1,
          token: await fleet.token(identity),
        });
        knocking.peer.send(text);
        expect(codes.has((await knocking.peer.close()).code)).toBe(true);
        // Text that is no object at all is broken JSON to a control, which ends it.
        if (typeof value === 'object' && value !== null && !Array.isArray(value)) host.peer.send(text);
      }),
      { numRuns: 60 },
    );
    expect(host.peer.isOpen).toBe(true);
    expect(host.problems).toEqual([]);
  });

  test('commands with wrong fields are control-errors, and the channel goes on', async () => {
    const { host } = await fleet.seat();
    const bad = [
      { type: 'invite-create', reqId: 'a' },
      { type: 'invite-create', reqId: '', relayDeviceId: 'd' },
      { type: 'invite-create', reqId: 'x'.repeat(129), relayDeviceId: 'd' },
      { type: 'device-revoke', reqId: 'b', relayDeviceId: 7 },
      {
        type: 'device-credential-install',
        v: 1,
        reqId: 'c',
        relayDeviceId: 'd',
        newResumeTokenHash: 'short',
        authorization: {},
      },
      {
        type: 'device-credential-install',
        v: 1,
        reqId: 'c',
        relayDeviceId: 'd',
        newResumeTokenHash: newToken(),
        authorization: { mode: 'relay-basis', directAuthId: 'x' },
      },
      { type: 'device-resume-confirm', v: 2, reqId: 'e', basisConnId: 'x' },
      { type: 'auth-refresh' },
      { type: 'host-hello', v: 1 },
      { reqId: 'no type' },
    ];
    for (const message of bad) {
      host.send(message as { type: string });
      expect((await host.expect('control-error')).code, JSON.stringify(message)).not.toBe('');
    }
    expect((await host.createInvite('d')).maxAttempts).toBe(5);
  });
});

describe('two hosts at once', () => {
  test('of many dials of one host the newest activation stands, alone, and its late losers do not unseat it', async () => {
    const { identity, grant, host } = await fleet.seat();
    const device = await installDevice(host);
    const dials = await Promise.allSettled(Array.from({ length: 6 }, () => fleet.dial(identity, grant)));
    const hosts = dials.flatMap((dial) => (dial.status === 'fulfilled' ? [dial.value] : []));
    const open = await until(
      'one left',
      () => hosts.filter(({ peer }) => peer.isOpen),
      (left) => left.length === 1,
    );
    const [winner] = open as [RawHost];
    expect(winner.ack?.generation).toBe(Math.max(...hosts.map(({ ack }) => Number(ack?.generation))));
    const [lease] = await fleet.leases(identity);
    expect(lease).toMatchObject({ generation: winner.ack?.generation, state: 'active' });
    expect((await connectPair(winner, device.resumeToken)).hello.ok).toBe(true);
  });
});
