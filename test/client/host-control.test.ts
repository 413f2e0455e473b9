import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { type ControlResume, type HelloAck, HostControl } from '../../client/host-control.ts';
import { openDataSocket } from '../../client/host-data.ts';
import { hostNames, newHostKeys } from '../../client/host-keys.ts';
import { completePorts } from '../../client/ports.ts';
import type { SocketEnd } from '../../client/socket.ts';
import { openNodeSocket } from '../../client/socket-node.ts';
import { cellFrames, hostFrames } from '../../contract/control.ts';
import { newToken } from '../../contract/credentials.ts';
import { issueChallenge } from '../../contract/host-proof.ts';
import { until } from '../acceptance/support/wait.ts';
import { ManualClock } from './support/manual-clock.ts';

/**
 * One control channel against a scripted cell: what a cell that works never does. The cell's end is plain `ws` and the
 * contract; time passes only on the host's side, and only when told to.
 */
const servers: WebSocketServer[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    for (const client of server.clients) client.terminate();
    server.close();
  }
});

const keys = newHostKeys();
const names = hostNames(keys);
const claims = {
  sub: 'user',
  prof: 'profile',
  relayHostId: names.relayHostId,
  purpose: 'host-control' as const,
  exp: 2_000_000_000,
};

interface Script {
  /** The origin that goes into the proof; the one that was dialled by default. */
  relayOrigin?: string;
  resumeRequested?: boolean;
  generation?: number;
}

async function scene(script: Script = {}, resume?: ControlResume) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', autoPong: false });
  servers.push(server);
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const clock = new ManualClock(Date.now());
  const heard: string[] = [];
  let pings = 0;
  let cell: WebSocket | undefined;
  server.on('connection', (socket) => {
    cell = socket;
    socket.on('ping', () => {
      pings += 1;
    });
    socket.on('message', (data) => {
      const read = hostFrames.read(String(data));
      if (!read.ok) throw new Error(`the host sent ${String(data)}`);
      const { frame } = read;
      heard.push(frame.type);
      if (frame.type === 'host-hello') {
        const issued = issueChallenge({
          relayOrigin: script.relayOrigin ?? origin,
          challengeId: 'challenge-1',
          issuedAt: Date.now(),
          userId: claims.sub,
          profileId: claims.prof,
          organizationId: null,
          relayHostId: names.relayHostId,
          hostPublicKey: keys.publicKey,
          assignmentEpoch: 1,
          previousGeneration: frame.previousGeneration,
          resumeRequested: script.resumeRequested ?? frame.controlResumeSecret !== undefined,
        });
        socket.send(cellFrames.write('host-challenge', issued.frame));
      }
      if (frame.type === 'host-challenge-ack') {
        socket.send(
          cellFrames.write('host-hello-ack', {
            v: 1,
            generation: script.generation ?? 1,
            controlResumeSecret: newToken(),
            leaseExpiresAt: Date.now() + 21_600_000,
            activeConnIds: [],
            pendingConns: [],
          }),
        );
      }
    });
  });
  const warnings: string[] = [];
  const drains: number[] = [];
  const ended: { end: SocketEnd; resumeRefused: boolean }[] = [];
  let control!: HostControl;
  const settled = new Promise<HelloAck | null>((resolve) => {
    control = new HostControl(
      completePorts(openNodeSocket, { clock }),
      { ...names, keys, appVersion: 'test', relayToken: 'token', claims },
      { cellUrl: origin, assignmentEpoch: 1, lease: 'lease' },
      resume,
      {
        ready: resolve,
        connOpen() {},
        drain: (graceMs) => drains.push(graceMs),
        warning: (text) => warnings.push(text),
        ended(end, resumeRefused) {
          ended.push({ end, resumeRefused });
          resolve(null);
        },
      },
    );
  });
  const ack = await settled;
  const over = () =>
    until(
      'the end of the control',
      () => ended,
      (seen) => seen.length === 1,
    );
  return {
    ack,
    control,
    clock,
    heard,
    warnings,
    drains,
    ended,
    over,
    pings: () => pings,
    cell: () => cell as WebSocket,
  };
}

describe('the proof', () => {
  test('a cell that is not the one that was dialled gets no answer', async () => {
    const { ack, heard, ended } = await scene({ relayOrigin: 'https://other.example' });
    expect(ack).toBeNull();
    expect(heard).toEqual(['host-hello']);
    expect(ended[0]?.resumeRefused).toBe(false);
  });

  test('a cell that does not know the secret is told apart from one that fails', async () => {
    const resume = { previousGeneration: 3, controlResumeSecret: newToken() };
    const forgotten = await scene({ resumeRequested: false }, resume);
    expect([forgotten.ack, forgotten.ended[0]?.resumeRefused]).toEqual([null, true]);
    const other = await scene({ generation: 4 }, resume);
    expect([other.ack, other.ended[0]?.resumeRefused]).toEqual([null, true]);
    const same = await scene({ generation: 3 }, resume);
    expect(same.ack?.generation).toBe(3);
  });
});

describe('an active control', () => {
  test('echoes pings, and passes over what it does not know, with a warning', async () => {
    const { cell, heard, warnings, drains, ended } = await scene();
    for (const odd of [
      '{"type":"fresh-feature","x":1}',
      'not json',
      `{"type":"control-error","reqId":"r","code":"${'x'.repeat(129)}"}`,
      '{"type":"control-error","code":"nobody_asked"}',
      '{"type":"invite-created","reqId":"r","inviteToken":"short","expiresAt":1,"maxAttempts":5}',
    ]) {
      cell().send(odd);
    }
    cell().send(cellFrames.write('ping', { t: 5 }));
    cell().send(cellFrames.write('drain', { graceMs: 7, recovery: 'resolve-director' }));
    await until(
      'the drain',
      () => drains,
      (seen) => seen.length === 1,
    );
    await until(
      'the pong',
      () => heard,
      (seen) => seen.length === 3,
    );
    expect(warnings).toHaveLength(5);
    expect(heard).toEqual(['host-hello', 'host-challenge-ack', 'pong']);
    expect(ended).toEqual([]);
  });

  test.each([
    ['a binary frame', (cell: WebSocket) => cell.send(Buffer.from('{}'))],
    ['a message over 64 KiB', (cell: WebSocket) => cell.send('x'.repeat(65_536))],
  ])('is ended by %s', async (_what, misbehave) => {
    const { cell, over } = await scene();
    misbehave(cell());
    await over();
  });

  test('ends after 75 s without a word', async () => {
    const { clock, ended, over } = await scene();
    await clock.advance(75_000);
    expect(ended).toEqual([]);
    await clock.advance(15_001);
    await over();
  });

  test('answers a request that got none with three pings, 8 s apart, and then ends', async () => {
    const { control, clock, pings, ended, over } = await scene();
    const request = control.request('invite-create', { reqId: 'r-1', relayDeviceId: 'd' });
    const outcome = expect(request).rejects.toMatchObject({ code: 'request_timeout' });
    await clock.advance(10_000);
    await outcome;
    await clock.advance(23_999);
    await until('three pings', pings, (seen) => seen === 3);
    expect(ended).toEqual([]);
    await clock.advance(1);
    await over();
  });

  test('a sign of life ends the probing', async () => {
    const { control, clock, cell, heard, pings, ended } = await scene();
    const request = control.request('invite-create', { reqId: 'r-1', relayDeviceId: 'd' });
    const outcome = expect(request).rejects.toMatchObject({ code: 'request_timeout' });
    await clock.advance(10_000);
    await outcome;
    await until('a ping', pings, (seen) => seen === 1);
    cell().send(cellFrames.write('ping', { t: 1 }));
    await until(
      'a pong',
      () => heard,
      (seen) => seen.includes('pong'),
    );
    await clock.advance(40_000);
    expect(pings()).toBe(1);
    expect(ended).toEqual([]);
  });

  test('requests under way fail with it, and later ones at once', async () => {
    const { control, cell, over } = await scene();
    const request = control.request('invite-create', { reqId: 'r-1', relayDeviceId: 'd' });
    const outcome = expect(request).rejects.toMatchObject({ code: 'control_lost' });
    cell().terminate();
    await outcome;
    await over();
    const late = control.request('device-revoke', { reqId: 'r-2', relayDeviceId: 'd' });
    await expect(late).rejects.toMatchObject({ code: 'not_connected' });
  });

  test('no more than 64 requests wait, and no two under one id', async () => {
    const { control } = await scene();
    const ask = (n: number) => control.request('device-revoke', { reqId: `r-${n}`, relayDeviceId: 'd' });
    const waiting = Array.from({ length: 64 }, (_, n) => ask(n).catch((error: { code: string }) => error.code));
    await expect(ask(64)).rejects.toMatchObject({ code: 'too_many_requests' });
    control.terminate();
    expect(new Set(await Promise.all(waiting))).toEqual(new Set(['control_lost']));
  });
});

test('a cell that never answers the hello is left after 15 s', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  servers.push(server);
  await once(server, 'listening');
  const clock = new ManualClock(Date.now());
  const accepted = once(server, 'connection');
  const ended = new Promise<SocketEnd>((resolve) => {
    new HostControl(
      completePorts(openNodeSocket, { clock }),
      { ...names, keys, appVersion: 'test', relayToken: 'token', claims },
      { cellUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, assignmentEpoch: 1, lease: 'lease' },
      undefined,
      { ready() {}, connOpen() {}, drain() {}, warning() {}, ended: resolve },
    );
  });
  await accepted;
  await clock.advance(15_000);
  expect((await ended).code).toBe(1006);
});

test('a data socket whose phone says nothing is given up at its deadline, one that was not accepted is dialled again', async () => {
  const server = new WebSocketServer({ noServer: true });
  const { createServer } = await import('node:http');
  const http = createServer();
  let upgrades = 0;
  http.on('upgrade', (request, socket, head) => {
    upgrades += 1;
    if (upgrades < 3) socket.end('HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n');
    else server.handleUpgrade(request, socket, head, (ws) => server.emit('connection', ws));
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const clock = new ManualClock();
  const first = new Promise<string>((resolve) => {
    server.on('connection', (ws) => ws.once('message', (data) => resolve(String(data))));
  });
  let joined = 0;
  const ended = new Promise<void>((resolve) => {
    openDataSocket(
      completePorts(openNodeSocket, { clock }),
      {
        cellUrl: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
        connId: 'connection/1',
        connTicket: newToken(),
        generation: 1,
        attachDeadlineMs: 10_000,
        kind: undefined,
        relayDeviceId: undefined,
      },
      { joined: () => (joined += 1), ended: resolve },
    );
  });
  await until(
    'the first refusal',
    () => upgrades + clock.armed,
    (seen) => seen === 1 + 2,
  );
  await clock.advance(500);
  await until(
    'the second refusal',
    () => upgrades + clock.armed,
    (seen) => seen === 2 + 2,
  );
  await clock.advance(500);
  expect(await first).toContain('host-data-auth');
  await clock.advance(9_000);
  await ended;
  expect([upgrades, joined, clock.armed]).toEqual([3, 0, 0]);
  http.close();
});
