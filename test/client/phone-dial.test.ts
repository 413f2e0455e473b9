import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { createPhone, newResumeToken, pairWithInvite, type RelayInvite, readInvite } from '../../client/index.ts';
import { dialPhone } from '../../client/phone-dial.ts';
import { completePorts } from '../../client/ports.ts';
import { openNodeSocket } from '../../client/socket-node.ts';
import { relayFrames } from '../../contract/phone.ts';
import { ManualClock } from './support/manual-clock.ts';

/** Dials against scripted cells and directors: what the phone makes of each answer (wire 3.2). */
const servers: WebSocketServer[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    for (const client of server.clients) client.terminate();
    server.close();
  }
});

type Answer = (socket: WebSocket, firstFrame: string) => void;

async function relay(answer: Answer): Promise<{ origin: string; asked: string[] }> {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  servers.push(server);
  await once(server, 'listening');
  const asked: string[] = [];
  server.on('connection', (socket, request) => {
    asked.push(request.url ?? '');
    socket.once('message', (data) => answer(socket, String(data)));
  });
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

const HOST = 'abcdefghijklmnop';
const signal = new AbortController().signal;
const inviteHello = relayFrames.write('relay-hello', { ok: true, credentialKind: 'invite', leaseExpiresAt: 1 });
const resumeHello = relayFrames.write('relay-hello', {
  ok: true,
  credentialKind: 'resume',
  leaseExpiresAt: 1,
  acceptedCredentialVersion: 1,
  acceptedAs: 'current',
  resumeExpiresAt: 2,
});
const refuse =
  (code: 4401 | 4404 | 4408 | 4409 | 4429 | 4503, reason = ''): Answer =>
  (socket) => {
    socket.send(relayFrames.write('relay-hello', { ok: false, code }));
    socket.close(code, reason);
  };
const move =
  (cellUrl: string, assignmentEpoch: number): Answer =>
  (socket) => {
    socket.send(relayFrames.write('relay-moved', { v: 1, cellUrl, assignmentEpoch }));
    socket.close(4503, 'connect to assigned cell');
  };

function dial(origin: string, clock?: ManualClock) {
  const ports = completePorts(openNodeSocket, clock ? { clock } : {});
  return dialPhone(ports, { origin, relayHostId: HOST, credential: newResumeToken().token }, signal);
}

describe('one dial', () => {
  test('sends its credential in the first frame, and keeps what follows the hello in the same packet', async () => {
    let first = '';
    const cell = await relay((socket, frame) => {
      first = frame;
      socket.send(resumeHello);
      socket.send('early');
    });
    const outcome = await dial(cell.origin);
    if (outcome.kind !== 'hello') throw new Error(outcome.kind);
    expect(await outcome.stream.receive()).toBe('early');
    expect(JSON.parse(first)).toEqual({
      type: 'relay-auth',
      v: 1,
      mode: 'connect',
      credential: expect.stringMatching(/^[\w-]{43}$/),
    });
    expect(cell.asked).toEqual([`/v1/connect/${HOST}`]);
  });

  test.each([4401, 4404, 4408, 4409, 4429, 4503] as const)(
    'hello %i ends it with the words of the close',
    async (code) => {
      const cell = await relay(refuse(code, 'why'));
      expect(await dial(cell.origin)).toEqual({ kind: 'ended', end: { code, reason: 'why' }, answered: true });
    },
  );

  test('a refusal counts even when no close follows it', async () => {
    const cell = await relay((socket) => socket.send(relayFrames.write('relay-hello', { ok: false, code: 4404 })));
    const clock = new ManualClock();
    const outcome = dial(cell.origin, clock);
    const poll = setInterval(() => void clock.advance(500), 5);
    expect(await outcome).toMatchObject({ kind: 'ended', end: { code: 4404 }, answered: true });
    clearInterval(poll);
  });

  test.each<[string, Answer]>([
    ['no JSON', (socket) => socket.send('hello')],
    ['a binary hello', (socket) => socket.send(Buffer.from(resumeHello))],
    ['a key too many', (socket) => socket.send(resumeHello.replace('{', '{"extra":1,'))],
    ['an unknown type', (socket) => socket.send('{"type":"relay-welcome"}')],
    ['a hang-up', (socket) => socket.terminate()],
  ])('%s instead of a hello is fatal for that dial', async (_what, answer) => {
    const cell = await relay(answer);
    expect(await dial(cell.origin)).toMatchObject({ kind: 'ended', answered: false });
  });

  test('is given up after 12 s', async () => {
    let asked = () => {};
    const arrived = new Promise<void>((resolve) => {
      asked = resolve;
    });
    const cell = await relay(() => asked());
    const clock = new ManualClock();
    const outcome = dial(cell.origin, clock);
    await arrived;
    await clock.advance(12_000);
    expect(await outcome).toMatchObject({ kind: 'ended', answered: false });
    expect(clock.armed).toBe(0);
  });
});

describe('pairing', () => {
  const invite = (cellUrl: string, directorUrl: string, assignmentEpoch = 3): RelayInvite => ({
    v: 1,
    directorUrl,
    cellUrl,
    assignmentEpoch,
    relayHostId: HOST,
    inviteToken: newResumeToken().token,
    inviteExpiresAt: Date.now() + 60_000,
    e2eeFraming: 2,
  });
  const welcome: Answer = (socket) => socket.send(inviteHello);

  test.each([4409, 4503] as const)('after %i the director is asked, and a newer epoch followed', async (code) => {
    const [old, now] = [await relay(refuse(code)), await relay(welcome)];
    const director = await relay(move(now.origin, 4));
    const paired = await pairWithInvite(invite(old.origin, director.origin));
    expect(paired.endpoint).toEqual({ cellUrl: now.origin, assignmentEpoch: 4 });
  });

  test('so it is where nobody answers', async () => {
    const now = await relay(welcome);
    const director = await relay(move(now.origin, 4));
    const paired = await pairWithInvite(invite('http://127.0.0.1:9', director.origin));
    expect(paired.endpoint.cellUrl).toBe(now.origin);
  });

  test.each([3, 2])('a move to epoch %i is not newer and is not followed', async (epoch) => {
    const [old, now] = [await relay(refuse(4409)), await relay(welcome)];
    const director = await relay(move(now.origin, epoch));
    await expect(pairWithInvite(invite(old.origin, director.origin))).rejects.toMatchObject({ failure: 'moved' });
    expect(now.asked).toEqual([]);
  });

  test('a cell cannot send a phone elsewhere, nor can a second move', async () => {
    const elsewhere = await relay(welcome);
    const cell = await relay(move(elsewhere.origin, 9));
    await expect(pairWithInvite(invite(cell.origin, 'http://127.0.0.1:9'))).rejects.toMatchObject({ failure: 'moved' });
    const director = await relay(move(cell.origin, 4));
    const old = await relay(refuse(4409));
    await expect(pairWithInvite(invite(old.origin, director.origin))).rejects.toMatchObject({ failure: 'moved' });
    expect(elsewhere.asked).toEqual([]);
  });

  test.each([
    [4401, 'invite-refused'],
    [4404, 'host-offline'],
    [4408, 'busy'],
    [4429, 'busy'],
  ] as const)('%i is %s, and no director is asked', async (code, failure) => {
    const cell = await relay(refuse(code));
    const director = await relay(welcome);
    await expect(pairWithInvite(invite(cell.origin, director.origin))).rejects.toMatchObject({ failure });
    expect(director.asked).toEqual([]);
  });

  test('a director that does not know the invite has the last word', async () => {
    const [cell, director] = [await relay(refuse(4409)), await relay(refuse(4401, 'invalid invite'))];
    await expect(pairWithInvite(invite(cell.origin, director.origin))).rejects.toMatchObject({
      failure: 'invite-refused',
      end: { reason: 'invalid invite' },
    });
  });

  test('a cell that takes the invite for something else is not trusted', async () => {
    const cell = await relay((socket) => socket.send(resumeHello));
    await expect(pairWithInvite(invite(cell.origin, cell.origin))).rejects.toMatchObject({ failure: 'invite-refused' });
  });
});

test.each<[string, Answer]>([
  ['an invite’s hello', (socket) => socket.send(inviteHello)],
  ['a move', move('https://elsewhere.example', 9)],
])('a resuming phone that gets %s tries again', async (_what, answer) => {
  const cell = await relay(answer);
  const phone = createPhone({
    directorOrigins: ['http://127.0.0.1:9'],
    relayHostId: HOST,
    endpoint: { cellUrl: cell.origin, assignmentEpoch: 1 },
    resumeTokens: [newResumeToken().token],
  });
  const retry = phone.next('retry');
  phone.start();
  expect((await retry).reason).toContain('unexpected answer');
  expect(phone.endpoint).toEqual({ cellUrl: cell.origin, assignmentEpoch: 1 });
  phone.stop();
});

test('a confirm hook that takes longer than 30 s loses its connection', async () => {
  const cell = await relay((socket) => socket.send(resumeHello));
  const clock = new ManualClock();
  let started = () => {};
  const confirming = new Promise<void>((resolve) => {
    started = resolve;
  });
  const phone = createPhone(
    {
      directorOrigins: ['http://127.0.0.1:9'],
      relayHostId: HOST,
      endpoint: { cellUrl: cell.origin, assignmentEpoch: 1 },
      resumeTokens: [newResumeToken().token],
      confirm: () => {
        started();
        return new Promise(() => {});
      },
    },
    { clock },
  );
  phone.start();
  await confirming;
  const retry = phone.next('retry');
  await clock.advance(30_000);
  expect((await retry).reason).toBe('not confirmed: no answer within 30000 ms');
  phone.stop();
});

describe('what was scanned', () => {
  const now = 1_700_000_000_000;
  const good: RelayInvite = {
    v: 1,
    directorUrl: 'https://director.example',
    cellUrl: 'https://cell.example',
    assignmentEpoch: 1,
    relayHostId: HOST,
    inviteToken: newResumeToken().token,
    inviteExpiresAt: now + 570_000,
    e2eeFraming: 2,
  };
  test.each<[string, object, boolean]>([
    ['an invite', {}, true],
    ['one from a clock half a minute ahead', { inviteExpiresAt: now + 630_000 }, true],
    ['one that has ended', { inviteExpiresAt: now }, false],
    ['one that ends too late', { inviteExpiresAt: now + 630_001 }, false],
    ['one with a key too many', { extra: 1 }, false],
    ['one without TLS', { cellUrl: 'http://cell.example' }, false],
    ['one of another framing', { e2eeFraming: 1 }, false],
  ])('%s', (_what, change, taken) => {
    expect(readInvite({ ...good, ...change }, now) !== null).toBe(taken);
  });
});
