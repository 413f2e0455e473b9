import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { notFound, readJson, route, sourceAddress } from '../../server/http.ts';
import { type App, createApp, type Listener, listen } from '../../server/uws.ts';

const errors: unknown[] = [];
let app: App;
let listener: Listener;
let origin: string;
let hungUp: Promise<void>;

beforeAll(async () => {
  app = createApp({ onError: (error) => errors.push(error) });
  route(app, 'get', '/now', (request) => ({
    status: 200,
    json: { method: request.method, path: request.path, query: request.query, x: request.header('x-a') },
  }));
  route(app, 'post', '/echo', async (request) => {
    await new Promise(setImmediate);
    return { status: 201, text: String(request.body?.length), headers: { 'x-late': request.header('x-a') ?? '' } };
  });
  route(app, 'post', '/wide', (request) => ({ status: 200, text: String(request.body?.length) }), {
    maxBodyBytes: 1 << 20,
  });
  route(app, 'get', '/throws', () => {
    throw new Error('thrown');
  });
  route(app, 'get', '/rejects', async () => {
    await new Promise(setImmediate);
    throw new Error('rejected');
  });
  hungUp = new Promise((resolve) => {
    route(
      app,
      'get',
      '/waits',
      (request) =>
        new Promise((answer) => {
          request.signal.addEventListener('abort', () => {
            answer({ status: 200, text: 'to nobody' });
            resolve();
          });
        }),
    );
  });
  notFound(app);
  listener = await listen(app, '127.0.0.1', 0);
  origin = `http://127.0.0.1:${listener.port}`;
});
afterAll(() => listener.destroy());

describe('route', () => {
  it('hands over method, path, query and headers', async () => {
    const reply = await fetch(`${origin}/now?a=%zz`, { headers: { 'X-A': 'one' } });
    expect(reply.status).toBe(200);
    expect(reply.headers.get('content-type')).toBe('application/json');
    expect(await reply.json()).toEqual({ method: 'GET', path: '/now', query: 'a=%zz', x: 'one' });
  });

  it('keeps the request after an await', async () => {
    const reply = await fetch(`${origin}/echo`, { method: 'POST', body: 'hello', headers: { 'X-A': 'two' } });
    expect([reply.status, await reply.text(), reply.headers.get('x-late')]).toEqual([201, '5', 'two']);
  });

  it('takes a body of exactly the limit and refuses one byte more', async () => {
    const send = (length: number) => fetch(`${origin}/echo`, { method: 'POST', body: Buffer.alloc(length) });
    expect((await send(4_096)).status).toBe(201);
    const refused = await send(4_097);
    expect([refused.status, await refused.json()]).toEqual([413, { error: 'request_too_large' }]);
    const wide = await fetch(`${origin}/wide`, { method: 'POST', body: Buffer.alloc(1 << 20) });
    expect(await wide.text()).toBe(String(1 << 20));
  });

  it.each(['/throws', '/rejects'])('answers 500 for %s and reports it', async (path) => {
    errors.length = 0;
    const reply = await fetch(origin + path);
    expect([reply.status, await reply.json()]).toEqual([500, { error: 'internal_error' }]);
    expect(errors).toHaveLength(1);
  });

  it('answers 404 to everything else, whatever the method', async () => {
    for (const method of ['GET', 'POST', 'DELETE']) {
      const reply = await fetch(`${origin}/healthz`, { method });
      expect([reply.status, await reply.json()]).toEqual([404, { error: 'not_found' }]);
    }
  });

  it('aborts the signal when the peer hangs up, and lives', async () => {
    const socket = connect(listener.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.write('GET /waits HTTP/1.1\r\nhost: x\r\n\r\n');
    await fetch(`${origin}/now`);
    socket.destroy();
    await hungUp;
    expect((await fetch(`${origin}/now`)).status).toBe(200);
  });

  it('lives through broken requests', async () => {
    for (const text of [
      'GET\r\n\r\n',
      '\0\0\0\0\r\n\r\n',
      'POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n',
    ]) {
      const socket = connect(listener.port, '127.0.0.1');
      socket.on('error', () => {});
      await once(socket, 'connect');
      socket.end(text);
      await once(socket.resume(), 'close');
    }
    expect((await fetch(`${origin}/now`)).status).toBe(200);
  });
});

describe('sourceAddress (wire 1.3.6)', () => {
  it.each([
    [undefined, 'peer'],
    ['', 'peer'],
    ['1.1.1.1', 'peer'],
    ['1.1.1.1, 2.2.2.2', '1.1.1.1'],
    ['9.9.9.9, 1.1.1.1 ,2.2.2.2', '1.1.1.1'],
    [', 2.2.2.2', 'peer'],
  ])('%j counts against %s', (header, source) => {
    expect(sourceAddress(header, 'peer')).toBe(source);
  });
});

describe('readJson', () => {
  const schema = z.strictObject({ v: z.literal(1) });
  it.each([
    ['{"v":1}', { v: 1 }],
    ['{"v":2}', null],
    ['{"v":1,"w":1}', null],
    ['{', null],
    ['', null],
  ])('%j', (text, value) => {
    expect(readJson(schema, Buffer.from(text))).toEqual(value);
  });
  it('refuses bytes that are no UTF-8, and no body', () => {
    expect(readJson(z.string(), Buffer.from([0x22, 0xff, 0x22]))).toBeNull();
    expect(readJson(schema, undefined)).toBeNull();
  });
});
