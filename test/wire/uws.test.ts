import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { notFound } from '../../server/http.ts';
import { pathTail, type SocketHandlers, socketRoute } from '../../server/socket-route.ts';
import {
  type App,
  canPause,
  createApp,
  cutReason,
  destroySocket,
  endSocket,
  isClosed,
  isEnding,
  ListenError,
  type Listener,
  listen,
  type Socket,
  selfTestPause,
} from '../../server/uws.ts';

interface State {
  name: string;
}

const errors: unknown[] = [];
const sockets = new Map<string, Socket<State>>();
const closes: { name: string; code: number; reason: string }[] = [];
let abandoned: string[] = [];
let admit: Promise<void> = Promise.resolve();
let waitForClose: (() => void) | undefined;

const handlers: SocketHandlers<State> = {
  async upgrade(request) {
    if (request.query !== '') return { refuse: { status: 400, json: { error: 'query' } } };
    const name = pathTail(request.path, '/v1/data/');
    if (name === null) return { refuse: { status: 429, headers: { 'retry-after': '2' } } };
    await admit;
    if (name === 'broken') throw new Error('upgrade');
    return { accept: { name } };
  },
  abandoned: (state) => abandoned.push(state.name),
  open: (ws, state) => sockets.set(state.name, ws),
  message(ws, state, data, isBinary) {
    const text = Buffer.from(data).toString();
    if (text === 'throw') throw new Error(`message of ${state.name}`);
    if (text === 'end twice') {
      endSocket(ws, 4409, 'first');
      endSocket(ws, 4503, 'second');
      return;
    }
    ws.send(data, isBinary);
  },
  close(_ws, state, code, reason) {
    closes.push({ name: state.name, code, reason });
    sockets.delete(state.name);
    waitForClose?.();
  },
};

let app: App;
let listener: Listener;
let origin: string;

beforeAll(async () => {
  app = createApp({ onError: (error) => errors.push(error) });
  socketRoute(app, '/v1/data/*', 'data', handlers);
  socketRoute(app, '/v1/control', 'control', {
    upgrade: () => ({ accept: { name: 'control' } }),
    message: handlers.message!,
  });
  notFound(app);
  listener = await listen(app, '127.0.0.1', 0);
  origin = `127.0.0.1:${listener.port}`;
});
afterAll(() => listener.destroy());

async function open(path: string): Promise<WebSocket> {
  const client = new WebSocket(`ws://${origin}${path}`, { perMessageDeflate: false });
  client.on('error', () => {});
  await once(client, 'open');
  return client;
}

async function refusal(path: string): Promise<{ status: number | undefined; retryAfter: string | undefined }> {
  const client = new WebSocket(`ws://${origin}${path}`);
  client.on('error', () => {});
  const [request, reply] = await once(client, 'unexpected-response');
  request.destroy();
  return { status: reply.statusCode, retryAfter: reply.headers['retry-after'] };
}

async function closeOf(client: WebSocket): Promise<{ code: number; reason: string }> {
  const [code, reason] = await once(client, 'close');
  return { code, reason: reason.toString() };
}

async function nextClose(name: string) {
  for (;;) {
    const found = closes.find((close) => close.name === name);
    if (found) return found;
    await new Promise<void>((resolve) => {
      waitForClose = resolve;
    });
  }
}

describe('upgrade', () => {
  it('refuses with the status and headers the route decided on', async () => {
    expect(await refusal('/v1/data/a?x=1')).toEqual({ status: 400, retryAfter: undefined });
    expect(await refusal('/v1/data/%E0%A4')).toEqual({ status: 429, retryAfter: '2' });
    expect(await refusal('/v1/data/')).toEqual({ status: 429, retryAfter: '2' });
    expect(await refusal(`/v1/data/${'x'.repeat(129)}`)).toEqual({ status: 429, retryAfter: '2' });
    expect(await refusal('/v1/nothing')).toEqual({ status: 404, retryAfter: undefined });
  });

  it('answers 503 and reports when the route fails', async () => {
    errors.length = 0;
    expect((await refusal('/v1/data/broken')).status).toBe(503);
    expect(errors).toHaveLength(1);
  });

  it('answers 404 to a plain GET of a WebSocket path', async () => {
    expect((await fetch(`http://${origin}/v1/control`)).status).toBe(404);
  });

  it('gives back what an upgrade took when the peer hangs up before the 101', async () => {
    abandoned = [];
    let release = () => {};
    admit = new Promise((resolve) => {
      release = resolve;
    });
    const socket = connect(listener.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.write(
      'GET /v1/data/gone HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n' +
        'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n',
    );
    await fetch(`http://${origin}/v1/control`);
    socket.destroy();
    await fetch(`http://${origin}/v1/control`);
    release();
    await fetch(`http://${origin}/v1/control`);
    admit = Promise.resolve();
    expect(abandoned).toEqual(['gone']);
    expect(sockets.has('gone')).toBe(false);
  });
});

describe('messages', () => {
  it('keeps text and binary apart and takes exactly the payload limit', async () => {
    const client = await open('/v1/control');
    client.send('text');
    expect(await once(client, 'message')).toEqual([Buffer.from('text'), false]);
    client.send(Buffer.alloc(1 << 20));
    expect(((await once(client, 'message')) as [Buffer, boolean])[0]).toHaveLength(1 << 20);
    client.send(Buffer.alloc((1 << 20) + 1));
    expect((await closeOf(client)).code).toBe(1006);
  });

  it('answers a WebSocket ping', async () => {
    const client = await open('/v1/data/ping');
    client.ping('there');
    expect(String((await once(client, 'pong'))[0])).toBe('there');
    client.terminate();
  });

  it('closes 4429 on an exception in a handler, and reports it', async () => {
    errors.length = 0;
    const client = await open('/v1/data/thrower');
    client.send('throw');
    expect(await closeOf(client)).toEqual({ code: 4429, reason: 'relay temporarily unavailable' });
    expect(errors).toHaveLength(1);
  });
});

describe('endSocket', () => {
  it('keeps the first code and reason, and calls close once', async () => {
    const client = await open('/v1/data/twice');
    const ws = sockets.get('twice')!;
    client.send('end twice');
    expect(await closeOf(client)).toEqual({ code: 4409, reason: 'first' });
    expect(closes.filter((close) => close.name === 'twice')).toHaveLength(1);
    expect([isClosed(ws), isEnding(ws)]).toEqual([true, true]);
    endSocket(ws, 4503, 'late');
    destroySocket(ws);
  });

  it('cuts the reason to 123 bytes between characters', async () => {
    const client = await open('/v1/data/long');
    endSocket(sockets.get('long')!, 4401, `${'x'.repeat(122)}é and more`);
    expect((await closeOf(client)).reason).toBe('x'.repeat(122));
    expect(Buffer.byteLength(cutReason('é'.repeat(100)))).toBe(122);
  });

  it('sends what is queued first to a peer that reads', async () => {
    const client = await open('/v1/data/reader');
    const ws = sockets.get('reader')!;
    client.pause();
    let sent = 0;
    while (ws.getBufferedAmount() < 1 << 20) {
      ws.send(Buffer.alloc(65_536), true);
      sent++;
    }
    let received = 0;
    client.on('message', () => {
      received++;
    });
    endSocket(ws, 4429, 'behind the queue');
    expect([isClosed(ws), isEnding(ws)]).toEqual([false, true]);
    client.resume();
    expect(await closeOf(client)).toEqual({ code: 4429, reason: 'behind the queue' });
    expect(received).toBe(sent);
  });

  it('cuts off a peer that does not take its queue, after 1 s, once', async () => {
    const client = await open('/v1/data/mute');
    const ws = sockets.get('mute')!;
    client.pause();
    while (ws.getBufferedAmount() < 1 << 20) ws.send(Buffer.alloc(65_536), true);
    const before = performance.now();
    endSocket(ws, 4429, 'unread');
    client.send('ignored');
    await nextClose('mute');
    const took = performance.now() - before;
    expect(took).toBeGreaterThan(900);
    expect(took).toBeLessThan(10_000);
    expect(closes.filter((close) => close.name === 'mute')).toHaveLength(1);
    client.terminate();
  });
});

describe('listen', () => {
  it('refuses a port in use with one clear line', async () => {
    const other = createApp();
    const attempt = listen(other, '127.0.0.1', listener.port);
    await expect(attempt).rejects.toThrow(ListenError);
    await expect(attempt).rejects.toThrow(`cannot listen on 127.0.0.1:${listener.port}: the port is in use`);
  });

  it('stops accepting on close while open sockets go on; destroy ends them', async () => {
    const other = createApp();
    socketRoute(other, '/v1/data/*', 'data', handlers);
    const own = await listen(other, '127.0.0.1', 0);
    const client = new WebSocket(`ws://127.0.0.1:${own.port}/v1/data/survivor`);
    await once(client, 'open');
    own.close();
    own.close();
    const late = connect(own.port, '127.0.0.1');
    expect((await once(late, 'error'))[0].code).toBe('ECONNREFUSED');
    client.send('still here');
    expect(String((await once(client, 'message'))[0])).toBe('still here');
    own.destroy();
    expect((await closeOf(client)).code).toBe(1006);
  });
});

describe('pausing', () => {
  it('is shown to work on this platform', async () => {
    expect(await selfTestPause()).toBe(true);
    expect(canPause()).toBe(true);
  });
});
