import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type EventStream, eventStreamRoute, type StreamEnd } from '../../server/event-stream.ts';
import { type App, createApp, type Listener, listen } from '../../server/uws.ts';
import { type EventReader, readEvents } from '../support/event-source.ts';
import { eventually } from '../support/eventually.ts';
import { HandClock } from '../support/hand-clock.ts';

const clock = new HandClock();
const errors: unknown[] = [];
let app: App;
let listener: Listener;
let url: string;
let opened: EventStream[] = [];
let ends: StreamEnd[] = [];
const readers: EventReader[] = [];

beforeAll(async () => {
  app = createApp({ onError: (error) => errors.push(error) });
  eventStreamRoute(
    app,
    '/events',
    {
      accept: ({ query }) => {
        if (query === 'refused') return { status: 503, json: { error: 'full' } };
        if (query === 'throws') throw new Error('thrown');
        return null;
      },
      opened: (stream) => opened.push(stream),
      ended: (stream, end) => {
        if (opened.includes(stream)) ends.push(end);
      },
    },
    clock,
    { 'x-own': 'yes' },
  );
  listener = await listen(app, '127.0.0.1', 0);
  url = `http://127.0.0.1:${listener.port}/events`;
});
afterEach(() => {
  for (const reader of readers.splice(0)) reader.close();
  opened = [];
  ends = [];
});
afterAll(() => listener.destroy());

async function reader(): Promise<{ peer: EventReader; stream: EventStream }> {
  const peer = await readEvents(url);
  readers.push(peer);
  await eventually(() => expect(opened).toHaveLength(1));
  return { peer, stream: opened[0] as EventStream };
}

describe('a stream of events', () => {
  test('sends what it is offered, of several lines too', async () => {
    const { peer, stream } = await reader();
    expect(peer.status).toBe(200);
    expect(peer.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      'x-own': 'yes',
    });
    stream.offer('{"a":\n1}');
    stream.offer('2');
    expect([await peer.next(), await peer.next()]).toEqual([{ a: 1 }, 2]);
  });

  test('sends what is pushed in order, with its id and name', async () => {
    const { peer, stream } = await reader();
    stream.push({ id: '1-7', event: 'change', data: '{"a":1}' });
    stream.push({ event: 'gap', data: '2' });
    expect([await peer.nextEvent(), await peer.nextEvent()]).toEqual([
      { id: '1-7', event: 'change', data: '{"a":1}' },
      { id: undefined, event: 'gap', data: '2' },
    ]);
  });

  test('says that it is alive when it is quiet', async () => {
    const { peer } = await reader();
    await eventually(() => expect(peer.comments()).toBe(1));
    clock.advance(3_999);
    clock.advance(1);
    await eventually(() => expect(peer.comments()).toBe(2));
  });

  test('refuses before it opens; a handler that throws costs only its request', async () => {
    const refused = await readEvents(`${url}?refused`);
    expect([refused.status, JSON.parse(await refused.body())]).toEqual([503, { error: 'full' }]);
    await expect(readEvents(`${url}?throws`)).rejects.toThrow();
    expect(errors).toHaveLength(1);
    expect(opened).toHaveLength(0);
  });

  test('ends when the peer hangs up, and leaves no timer', async () => {
    const armed = clock.armed;
    const { peer, stream } = await reader();
    expect(clock.armed).toBe(armed + 1);
    peer.close();
    await eventually(() => expect(ends).toEqual(['hung-up']));
    expect(clock.armed).toBe(armed);
    stream.offer('1');
    stream.stop();
    expect(ends).toEqual(['hung-up']);
  });

  test('stops in order', async () => {
    const { peer, stream } = await reader();
    stream.offer('1');
    stream.stop();
    expect(await peer.next()).toBe(1);
    await peer.ended;
    expect(ends).toEqual(['stopped']);
  });
});

describe('a peer that does not keep up', () => {
  const MANY = JSON.stringify('x'.repeat(4 << 20));
  /** More than sockets hold between them. */
  const fill = (stream: EventStream) => {
    for (let sent = 0; sent < 8; sent += 1) stream.offer(MANY);
  };

  test('gets the newest when it reads again, not all that it missed', async () => {
    const { peer, stream } = await reader();
    peer.pause();
    fill(stream);
    for (let old = 0; old < 50; old += 1) stream.offer(String(old));
    stream.offer('"newest"');
    clock.advance(4_000);
    peer.resume();
    const seen: unknown[] = [];
    await eventually(async () => {
      clock.advance(0);
      stream.offer('"newest"');
      while (peer.waiting() > 0) seen.push(await peer.next());
      expect(seen.at(-1)).toBe('newest');
    });
    expect(seen.filter((event) => typeof event === 'number')).toEqual([]);
    expect(ends).toEqual([]);
    // what came late counts no longer against it
    clock.advance(20_000);
    expect(ends).toEqual([]);
  });

  test('gets all that was pushed, whole and in order, if it is only late', async () => {
    const { peer, stream } = await reader();
    peer.pause();
    const text = 'y'.repeat(1 << 20);
    let sent = 0;
    for (; sent === 0 || stream.taken(); sent += 1) stream.push({ data: JSON.stringify({ n: sent, text }) });
    for (const last = sent + 3; sent < last; sent += 1) stream.push({ data: JSON.stringify({ n: sent }) });
    peer.resume();
    for (let n = 0; n < sent; n += 1) expect((await peer.next<{ n: number }>()).n).toBe(n);
    await eventually(() => expect(stream.taken()).toBe(true));
  });

  test('is dropped at once when too much waits for it', async () => {
    const { peer, stream } = await reader();
    peer.pause();
    for (let n = 0; n < 40 && !stream.over; n += 1) stream.push({ data: MANY });
    expect(ends).toEqual(['slow']);
    expect(stream.taken()).toBe(false);
    peer.resume();
    await peer.ended;
  });

  test('is dropped after 5 s, with a reason', async () => {
    const { peer, stream } = await reader();
    peer.pause();
    fill(stream);
    clock.advance(4_999);
    expect(ends).toEqual([]);
    // the sockets between may have taken some of it by now
    await eventually(() => {
      stream.offer(MANY);
      clock.advance(1_000);
      expect(ends).toEqual(['slow']);
    });
    peer.resume();
    await peer.ended;
  });
});
