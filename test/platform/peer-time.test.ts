import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { awaitFirstFrame } from '../../server/cell/first-frame.ts';
import { PeerSocket } from '../../server/cell/peer-socket.ts';
import { systemClock } from '../../server/clock.ts';
import { PeerTime, ranMs } from '../../server/peer-time.ts';
import { socketRoute } from '../../server/socket-route.ts';
import { createApp, listen } from '../../server/uws.ts';
import { HandClock } from '../support/hand-clock.ts';

function start(read: () => void = () => undefined) {
  const clock = new HandClock();
  const peerTime = new PeerTime(clock, (run) => {
    read();
    run();
  });
  return { clock, peerTime };
}

test.each([
  [0, 0],
  [250, 250],
  [500, 500],
  [501, 500],
  [3_600_000, 500],
])('%i ms after a beat count for %i', (gap, counts) => {
  expect(ranMs(gap)).toBe(counts);
});

test('a process that runs gives peers the time that passes, no more and no less', () => {
  const { clock, peerTime } = start();
  let fired = 0;
  peerTime.setTimeout(() => {
    fired += 1;
  }, 2_000);
  clock.advance(1_999);
  expect([fired, peerTime.now()]).toEqual([0, 1_999]);
  clock.advance(1);
  expect([fired, peerTime.now()]).toEqual([1, 2_000]);
  clock.advance(10_000);
  expect(fired).toBe(1);
});

test('the time of a stop counts against nobody but for half a second', () => {
  const { clock, peerTime } = start();
  let fired = false;
  peerTime.setTimeout(() => {
    fired = true;
  }, 2_000);
  clock.advance(1_000);
  clock.sleep(60_000);
  expect([fired, peerTime.now()]).toEqual([false, 1_500]);
  clock.advance(499);
  expect(fired).toBe(false);
  clock.advance(1);
  expect(fired).toBe(true);
});

test('what has arrived is read before a deadline is judged', () => {
  let read = () => undefined as undefined;
  const { clock, peerTime } = start(() => read());
  let fired = false;
  const timer = peerTime.setTimeout(() => {
    fired = true;
  }, 400);
  read = () => {
    peerTime.clearTimeout(timer);
  };
  clock.sleep(450);
  clock.advance(10_000);
  expect(fired).toBe(false);
});

test('leaves no timer behind', () => {
  const { clock, peerTime } = start();
  peerTime.clearTimeout(undefined);
  peerTime.clearTimeout(peerTime.setTimeout(() => undefined, 1_000));
  peerTime.stop();
  expect(clock.armed).toBe(0);
});

test('whatever the stops, a deadline gives its peer the whole time, and falls due once that has run', () => {
  const passage = fc.record({ stopped: fc.boolean(), ms: fc.integer({ min: 0, max: 5_000 }) });
  fc.assert(
    fc.property(fc.array(passage), fc.integer({ min: 0, max: 10_000 }), (passages, delay) => {
      const { clock, peerTime } = start();
      let firedAt: number | null = null;
      let ran = 0;
      peerTime.setTimeout(() => {
        firedAt = peerTime.now();
      }, delay);
      for (const { stopped, ms } of passages) {
        if (stopped) clock.sleep(ms);
        else clock.advance(ms);
        if (!stopped) ran += ms;
        if (firedAt === null) expect(peerTime.now()).toBeLessThanOrEqual(delay);
        expect(peerTime.now()).toBeGreaterThanOrEqual(ran);
        expect(peerTime.now()).toBeLessThanOrEqual(clock.now());
      }
      clock.advance(delay);
      expect(firedAt).toBeGreaterThanOrEqual(delay - 1);
    }),
  );
});

/** A peer in a thread of its own: says its one word as soon as it is let in, and that it has said it. */
const PROMPT_PEER = `
  const { workerData } = require('node:worker_threads');
  const { WebSocket } = require('ws');
  const socket = new WebSocket(workerData.url);
  socket.on('error', () => {});
  socket.on('open', () => socket.send('hello', () => {
    Atomics.store(workerData.said, 0, 1);
    Atomics.notify(workerData.said, 0);
  }));
`;
const DEADLINE_MS = 100;

test('a hello that came while the process stood still is heard, though its deadline has passed', async () => {
  const said = new Int32Array(new SharedArrayBuffer(4));
  const never = new Int32Array(new SharedArrayBuffer(4));
  const standStill = () => {
    Atomics.wait(said, 0, 0, 10_000);
    Atomics.wait(never, 0, 0, DEADLINE_MS + 20);
  };
  const peerTime = new PeerTime(systemClock);
  const app = createApp();
  const outcome = new Promise<string>((resolve) => {
    socketRoute<PeerSocket>(app, '/', 'control', {
      upgrade: () => ({ accept: new PeerSocket('test') }),
      open(ws, peer) {
        peer.opened(ws as never);
        awaitFirstFrame(peerTime, peer, {
          deadlineMs: DEADLINE_MS,
          late: 'host hello timeout',
          binary: 'host hello must be text',
          text: resolve,
          refuse: resolve,
          gone: () => resolve('gone'),
        });
        // Once the 101 is out.
        setImmediate(standStill);
      },
      message: (_ws, peer, data, isBinary) => peer.received(data, isBinary),
      close: (_ws, peer, code, reason) => peer.ended(code, reason),
    });
  });
  const listener = await listen(app, '127.0.0.1', 0);
  const url = `ws://127.0.0.1:${listener.port}/`;
  const peer = new Worker(PROMPT_PEER, { eval: true, workerData: { url, said } });
  try {
    expect(await outcome).toBe('hello');
  } finally {
    await peer.terminate();
    listener.destroy();
    peerTime.stop();
  }
});
