import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { CLIENT_LIMITS } from '../../client/limits.ts';
import type { OpenSocket, RelaySocket } from '../../client/socket.ts';
import { openNodeSocket } from '../../client/socket-node.ts';
import { MessageStream, StreamError } from '../../client/stream.ts';
import { LIMITS } from '../../contract/limits.ts';

const servers: WebSocketServer[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) {
    for (const client of server.clients) client.terminate();
    server.close();
  }
});

/** A stream of ours joined to a plain `ws` peer. */
async function joined(open: OpenSocket = openNodeSocket): Promise<{ stream: MessageStream; peer: WebSocket }> {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', maxPayload: LIMITS.maxFrameBytes });
  servers.push(server);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const accepted = once(server, 'connection') as Promise<[WebSocket]>;
  let stream: MessageStream | undefined;
  const opened = new Promise<RelaySocket>((resolve) => {
    const socket = open(
      { url: `ws://127.0.0.1:${port}/`, maxMessageBytes: LIMITS.maxFrameBytes },
      {
        opened: () => resolve(socket),
        message: (message) => stream?.deliver(message),
        drained: () => stream?.drained(),
        ended: (end) => stream?.finish(end),
      },
    );
  });
  const [peer] = await accepted;
  stream = new MessageStream(await opened);
  return { stream, peer };
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

describe('stream', () => {
  test('whole messages arrive in order, text as text and binary as binary', async () => {
    const { stream, peer } = await joined();
    peer.send('one');
    peer.send(Buffer.from([2, 2]));
    peer.send('');
    expect(await stream.receive()).toBe('one');
    expect([...((await stream.receive()) as Uint8Array)]).toEqual([2, 2]);
    expect(await stream.receive()).toBe('');
    peer.send('last');
    peer.close(4408, 'peer connection dropped');
    const rest = [];
    for await (const message of stream) rest.push(message);
    expect(rest).toEqual(['last']);
    expect(await stream.closed).toMatchObject({ code: 4408, reason: 'peer connection dropped' });
    expect(stream.end).toMatchObject({ code: 4408 });
    await expect(stream.send('late')).rejects.toMatchObject({ code: 'closed', end: { code: 4408 } });
  });

  test('a loop that is left early loses nothing', async () => {
    const { stream, peer } = await joined();
    for (const text of ['a', 'b', 'c']) peer.send(text);
    for await (const message of stream) if (message === 'a') break;
    expect(await stream.receive()).toBe('b');
    expect(await stream.receive()).toBe('c');
  });

  test('an app that does not read pauses the sender, and then loses nothing', async () => {
    const { stream, peer } = await joined();
    const chunk = Buffer.alloc(65_536);
    const total = 512;
    for (let n = 0; n < total; n += 1) {
      const numbered = Buffer.from(chunk);
      numbered.writeUInt32BE(n);
      peer.send(numbered);
    }
    await until(() => stream.paused);
    // What the kernel takes is bounded; the rest of 32 MiB waits on the sender's side.
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(peer.bufferedAmount).toBeGreaterThan(8 * 1_048_576);
    for (let n = 0; n < total; n += 1) {
      const message = (await stream.receive()) as Buffer;
      expect(message.readUInt32BE()).toBe(n);
    }
    expect(stream.paused).toBe(false);
  });

  test('send() waits for a peer that does not read, and goes on when it does', async () => {
    const { stream, peer } = await joined();
    peer.pause();
    const chunk = new Uint8Array(1_048_576);
    let sent = 0;
    const sending = (async () => {
      for (; sent < 64; sent += 1) await stream.send(chunk);
    })();
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(sent).toBeLessThan(32);
    let received = 0;
    peer.on('message', () => {
      received += 1;
    });
    peer.resume();
    await sending;
    await until(() => received === 64);
  });

  test('who does not wait for send() is refused before 16 MiB are exceeded, and what was taken arrives', async () => {
    const { stream, peer } = await joined();
    peer.pause();
    const chunk = new Uint8Array(1_048_576);
    const results = await Promise.all(
      Array.from({ length: 64 }, () => {
        const sent = stream.send(chunk).then(
          () => 'sent',
          (error: StreamError) => error.code,
        );
        return Promise.race([sent, new Promise((resolve) => setTimeout(resolve, 150, 'waiting'))]);
      }),
    );
    const refused = results.filter((result) => result === 'send-buffer-full').length;
    expect(refused).toBeGreaterThan(40);
    let received = 0;
    peer.on('message', () => {
      received += 1;
    });
    peer.resume();
    await until(() => received === 64 - refused);
  });

  test('a sender in a loop lets the event loop turn, and is stopped when its own side hangs up', async () => {
    const { stream } = await joined();
    const chunk = new Uint8Array(16_384);
    let turns = 0;
    const turning = setInterval(() => {
      turns += 1;
    }, 1);
    let sent = 0;
    const sending = (async () => {
      for (;;) {
        await stream.send(chunk);
        sent += 1;
      }
    })();
    await until(() => turns >= 20);
    clearInterval(turning);
    expect(sent).toBeGreaterThan(16);
    stream.terminate();
    await expect(sending).rejects.toMatchObject({ code: 'closed' });
  });

  test('a message over 8 MiB is refused, one of 8 MiB goes', async () => {
    const { stream, peer } = await joined();
    await expect(stream.send(new Uint8Array(LIMITS.maxFrameBytes + 1))).rejects.toThrow(StreamError);
    await expect(stream.send('ü'.repeat(LIMITS.maxFrameBytes / 2 + 1))).rejects.toThrow('message-too-large');
    const arrived = once(peer, 'message') as Promise<[Buffer]>;
    await stream.send(new Uint8Array(LIMITS.maxFrameBytes));
    expect((await arrived)[0].length).toBe(LIMITS.maxFrameBytes);
  });

  test('senders and readers that wait are told when the connection breaks', async () => {
    const { stream, peer } = await joined();
    const reading = stream.receive();
    peer.pause();
    const sends = Array.from({ length: 12 }, () => stream.send(new Uint8Array(1_048_576)));
    const outcomes = Promise.allSettled(sends);
    peer.terminate();
    expect(await reading).toBeNull();
    expect((await outcomes).at(-1)).toMatchObject({ status: 'rejected', reason: { code: 'closed' } });
    expect((await stream.closed).code).toBe(1006);
  });

  test('a peer that ignores the close frame is cut off after a second', async () => {
    const { stream, peer } = await joined();
    peer.pause();
    const since = performance.now();
    stream.close(1000, '');
    expect((await stream.closed).code).toBe(1006);
    expect(performance.now() - since).toBeLessThan(10_000);
  });

  test('where reading cannot be paused, unread messages are bounded and the stream closes itself', async () => {
    const unpausable: OpenSocket = (target, handlers) => ({
      ...openNodeSocket(target, handlers),
      pauseReading: () => false,
    });
    const { stream, peer } = await joined(unpausable);
    const chunk = Buffer.alloc(4 * 1_048_576);
    for (let n = 0; n < 12; n += 1) peer.send(chunk);
    const [code, reason] = (await once(peer, 'close')) as [number, Buffer];
    expect([code, reason.toString()]).toEqual([4429, 'receive limit exceeded']);
    let kept = 0;
    for await (const message of stream) kept += message.length;
    expect(kept).toBeLessThan(CLIENT_LIMITS.receiveLimitBytes + 2 * chunk.length);
  });
});

test('an upgrade that is refused says with what status and for how long', async () => {
  const { createServer } = await import('node:http');
  const http = createServer();
  http.on('upgrade', (_request, socket) => {
    socket.end('HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n');
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const { port } = http.address() as AddressInfo;
  const end = await new Promise((resolve) => {
    openNodeSocket(
      { url: `ws://127.0.0.1:${port}/`, maxMessageBytes: 1_024 },
      { opened() {}, message() {}, ended: resolve },
    );
  });
  http.close();
  expect(end).toMatchObject({ code: 1006, status: 503, retryAfterMs: 2_000 });
});
