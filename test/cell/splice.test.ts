import { once } from 'node:events';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { WebSocket } from 'ws';
import { LIMITS } from '../../contract/index.ts';
import { SPLICE_TRIGGERS } from '../../server/cell/splice-triggers.ts';
import { HandClock } from '../support/hand-clock.ts';
import {
  limitReading,
  type Pair,
  type SpliceRelay,
  type SpliceRelayOptions,
  startSpliceRelay,
  until,
} from './splice-relay.ts';

const MIB = 1_048_576;
let relay: SpliceRelay;
afterEach(() => relay.stop());

async function pairOf(options: SpliceRelayOptions = {}): Promise<Pair> {
  relay = await startSpliceRelay(options);
  return relay.pair();
}

/** Numbered from 0, so that a gap or a swap shows; the size counts the number's 4 bytes. */
function numbered(index: number, size: number): Buffer {
  const frame = Buffer.alloc(Math.max(4, size));
  frame.writeUInt32LE(index);
  return frame;
}

/** Checks order as frames come; `count` of them so far, `bytes` in all. */
function follow(socket: WebSocket): { count: number; bytes: number; ordered: boolean } {
  const seen = { count: 0, bytes: 0, ordered: true };
  socket.on('message', (data: Buffer) => {
    if (data.readUInt32LE() !== seen.count) seen.ordered = false;
    seen.count++;
    seen.bytes += data.length;
  });
  return seen;
}

/** Fills the target until bytes wait in the relay, and the kernels have taken all they will. */
async function stall(pair: Pair, frameBytes: number, frames: number): Promise<void> {
  pair.client.pause();
  for (let i = 0; i < frames; i++) pair.host.send(numbered(i, frameBytes));
  let before = -1;
  while (relay.splicer.queuedBytes === 0 || relay.splicer.queuedBytes !== before) {
    before = relay.splicer.queuedBytes;
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

/** In steps of half a second with a turn of the event loop between; how many milliseconds it took. */
async function advanceUntil(clock: HandClock, condition: () => boolean, atMostMs = 20_000): Promise<number> {
  let ms = 0;
  for (; ms < atMostMs && !condition(); ms += 500) {
    clock.advance(500);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  return ms;
}

/** 10 s from the last byte that the kernel took; on a busy machine it takes some while the hands of the clock turn. */
function expectWedgeTime(ms: number): void {
  expect(ms).toBeGreaterThanOrEqual(LIMITS.spliceWedgedMs);
  expect(ms).toBeLessThan(2 * LIMITS.spliceWedgedMs);
}

async function metric(name: string): Promise<string> {
  return (await relay.metrics.registry.getSingleMetricAsString(name)).split('\n').slice(2).join('\n');
}

describe('forwarding', () => {
  it('keeps opcode and bytes both ways, empty frames too', async () => {
    const { client, host } = await pairOf();
    const frames: [Buffer, boolean][] = [
      [Buffer.from('text é'), false],
      [Buffer.from([0, 255, 1]), true],
      [Buffer.alloc(0), true],
      [Buffer.alloc(0), false],
      [Buffer.alloc(8_192, 7), true],
      [Buffer.alloc(8_193, 8), true],
      [Buffer.from('y'.repeat(70_000)), false],
    ];
    for (const [from, to] of [
      [client, host],
      [host, client],
    ] as const) {
      const received: [Buffer, boolean][] = [];
      to.on('message', (data: Buffer, isBinary: boolean) => received.push([data, isBinary]));
      for (const [data, binary] of frames) from.send(data, { binary });
      await until(() => received.length === frames.length);
      expect(received).toEqual(frames);
    }
  });

  it('carries a frame of exactly 8 MiB; one byte more ends the splice as an oversize frame', async () => {
    const { client, host, triggers, hostClosed } = await pairOf();
    client.send(Buffer.alloc(LIMITS.maxFrameBytes));
    expect(((await once(host, 'message')) as [Buffer])[0]).toHaveLength(LIMITS.maxFrameBytes);
    client.send(Buffer.alloc(LIMITS.maxFrameBytes + 1));
    expect(await hostClosed).toEqual({ code: 4408, reason: 'peer connection dropped' });
    expect(triggers).toEqual(['client-oversize-frame']);
  });

  it('counts what it forwards by sender', async () => {
    const { client, host } = await pairOf();
    client.send('12345');
    await once(host, 'message');
    await until(() => true);
    expect(await metric('orca_relay_spliced_bytes_total')).toBe('orca_relay_spliced_bytes_total{from="client"} 5');
    expect(await metric('orca_relay_spliced_frames_total')).toBe('orca_relay_spliced_frames_total{from="client"} 1');
  });

  it('keeps order and loses nothing, whatever the sizes and stalls', async () => {
    relay = await startSpliceRelay();
    const size = fc.oneof(
      { weight: 6, arbitrary: fc.integer({ min: 4, max: 2_000 }) },
      { weight: 3, arbitrary: fc.integer({ min: 4, max: 70_000 }) },
      { weight: 1, arbitrary: fc.integer({ min: 4, max: 3 * MIB }) },
    );
    const step = fc.oneof(
      {
        weight: 8,
        arbitrary: fc.record({ from: fc.constantFrom('client', 'host'), size, times: fc.integer({ min: 1, max: 40 }) }),
      },
      {
        weight: 1,
        arbitrary: fc.record({ stall: fc.constantFrom('client', 'host'), ms: fc.integer({ min: 1, max: 15 }) }),
      },
      { weight: 1, arbitrary: fc.record({ wait: fc.integer({ min: 0, max: 3 }) }) },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), async (steps) => {
        const pair = await relay.pair();
        const sockets = { client: pair.client, host: pair.host };
        const seen = { client: follow(pair.client), host: follow(pair.host) };
        const sent = { client: 0, host: 0 };
        for (const one of steps) {
          if ('from' in one) {
            const from = one.from as 'client' | 'host';
            const times = one.size > 100_000 ? 1 : one.times;
            for (let i = 0; i < times; i++) sockets[from].send(numbered(sent[from]++, one.size));
          } else if ('stall' in one) {
            const socket = sockets[one.stall as 'client' | 'host'];
            socket.pause();
            setTimeout(() => socket.resume(), one.ms);
          } else await new Promise((resolve) => setTimeout(resolve, one.wait));
        }
        await until(() => seen.host.count === sent.client && seen.client.count === sent.host);
        expect([seen.host.ordered, seen.client.ordered]).toEqual([true, true]);
        expect(pair.triggers).toEqual([]);
        pair.client.terminate();
        await pair.hostClosed;
      }),
      { numRuns: 40 },
    );
    expect(relay.splicer.queuedBytes).toBe(0);
  });
});

describe('slow peers', () => {
  it('loses nothing of 1 MiB at 64 KiB frames to a phone that stalls for 9 s', async () => {
    const clock = new HandClock();
    const pair = await pairOf({ clock });
    // What the kernels take would hide 1 MiB: fill them first.
    const seen = follow(pair.client);
    await stall(pair, 65_536, 320);
    for (let i = 320; i < 336; i++) pair.host.send(numbered(i, 65_536));
    for (let ms = 0; ms < 9_000; ms += 500) {
      clock.advance(500);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(pair.triggers).toEqual([]);
    pair.client.resume();
    await until(() => seen.count === 336);
    expect(seen.ordered).toBe(true);
  });

  it('holds the sender back: a slow phone gets all, little waits in the relay, much in the host', async () => {
    const pair = await pairOf();
    const seen = follow(pair.client);
    const total = 16 * MIB;
    limitReading(pair.client, 16 * MIB);
    let mostQueued = 0;
    let mostInHost = 0;
    const watch = setInterval(() => {
      mostQueued = Math.max(mostQueued, relay.splicer.queuedBytes);
      mostInHost = Math.max(mostInHost, pair.host.bufferedAmount);
    }, 1);
    for (let i = 0; i < total / 65_536; i++) pair.host.send(numbered(i, 65_536));
    await until(() => seen.bytes === total);
    clearInterval(watch);
    expect(seen.ordered).toBe(true);
    expect(mostQueued).toBeLessThanOrEqual(2 * MIB);
    expect(mostInHost).toBeGreaterThan(4 * MIB);
    expect(pair.triggers).toEqual([]);
  });

  it('loses nothing of 8 MiB frames sent back to back to a phone that drains slowly', async () => {
    const pair = await pairOf();
    const seen = follow(pair.client);
    limitReading(pair.client, 64 * MIB);
    for (let i = 0; i < 6; i++) {
      pair.host.send(numbered(7 * i, LIMITS.maxFrameBytes));
      // Small ones right behind come in the same read as the end of the large one.
      for (let k = 1; k < 7; k++) pair.host.send(numbered(7 * i + k, 1_000));
    }
    await until(() => seen.count === 42);
    expect(seen.ordered).toBe(true);
    expect(pair.triggers).toEqual([]);
  });

  it('counts a phone that takes a little at a time as draining, also where the kernel is slow to say so', async () => {
    const clock = new HandClock();
    const pair = await pairOf({ clock });
    const seen = follow(pair.client);
    await stall(pair, 65_536, 256);
    // 9 s between sips of a few frames, far less than the third of its buffer at which a kernel reports room.
    for (let round = 0; round < 6; round++) {
      for (let ms = 0; ms < 9_000; ms += 500) clock.advance(500);
      const target = seen.count + 4;
      pair.client.resume();
      await until(() => seen.count >= target);
      pair.client.pause();
      await new Promise((resolve) => setTimeout(resolve, 5));
      clock.advance(500);
    }
    expect(pair.triggers).toEqual([]);
    pair.client.resume();
    await until(() => seen.count === 256);
    expect(seen.ordered).toBe(true);
  });

  it('closes a wedged link with 4429 after 10 s without a byte', async () => {
    const clock = new HandClock();
    const pair = await pairOf({ clock });
    await stall(pair, 65_536, 256);
    expectWedgeTime(await advanceUntil(clock, () => pair.triggers.length > 0));
    expect(pair.triggers).toEqual(['wedged']);
    expect(await pair.hostClosed).toEqual({ code: 4429, reason: 'wedged relay link' });
    await until(() => pair.ends.client === 1);
    expect(pair.ends).toEqual({ client: 1, host: 1 });
    expect(relay.splicer.queuedBytes).toBe(0);
    clock.advance(500);
    expect(clock.armed).toBe(0);
  });

  it('sees within seconds that a held-back host has gone', async () => {
    const clock = new HandClock();
    const pair = await pairOf({ clock });
    pair.client.pause();
    // Just enough to be held back, so that nothing stands before the end in the host's stream.
    const pauses = () => metric('orca_relay_splice_pauses_total');
    for (let i = 0; (await pauses()).endsWith(' 0'); i++) {
      pair.host.send(numbered(i, 65_536));
      await until(() => pair.host.bufferedAmount === 0);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    pair.host.terminate();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(pair.triggers).toEqual([]);
    expect(await advanceUntil(clock, () => pair.triggers.length > 0)).toBeLessThanOrEqual(8_000);
    expect(pair.triggers).toEqual(['host-closed']);
    // The phone still has not taken what waits for it; nobody looks for the host any more.
    expect(relay.splicer.queuedBytes).toBeGreaterThan(0);
    await advanceUntil(clock, () => relay.splicer.queuedBytes === 0);
    await until(() => pair.ends.client === 1);
    expect(pair.ends).toEqual({ client: 1, host: 1 });
  });
});

describe('bounds', () => {
  it('without pausing, closes both 4429 once more than 8 MiB + 256 KiB waits', async () => {
    const pair = await pairOf({ pausing: false });
    const seen = follow(pair.client);
    pair.client.pause();
    let most = 0;
    for (let i = 0; pair.triggers.length === 0; i++) {
      pair.host.send(numbered(i, 65_536));
      await new Promise(setImmediate);
      most = Math.max(most, relay.splicer.queuedBytes);
    }
    expect(pair.triggers).toEqual(['queue-limit']);
    expect(most).toBeGreaterThan(8 * MIB);
    expect(most).toBeLessThanOrEqual(LIMITS.spliceQueueBytes + 65_536);
    expect(await pair.hostClosed).toEqual({ code: 4429, reason: 'relay queue limit exceeded' });
    pair.client.resume();
    expect(await pair.clientClosed).toEqual({ code: 4429, reason: 'relay queue limit exceeded' });
    expect(seen.ordered).toBe(true);
    expect(seen.bytes).toBeGreaterThan(8 * MIB);
    expect(await metric('orca_relay_splice_pausing')).toBe('orca_relay_splice_pausing 0');
  });

  it('without pausing, a phone that stalls for less than the bounds loses nothing', async () => {
    const pair = await pairOf({ pausing: false });
    const seen = follow(pair.client);
    await stall(pair, 65_536, 100);
    pair.client.resume();
    await until(() => seen.count === 100);
    expect(seen.ordered).toBe(true);
  });

  it('closes the longest queue first when the process holds 64 MiB', async () => {
    relay = await startSpliceRelay({ pausing: false });
    const pairs = await Promise.all(Array.from({ length: 9 }, () => null)).then(async (slots) => {
      const made: Pair[] = [];
      for (const _ of slots) made.push(await relay.pair());
      return made;
    });
    const fill = async (pair: Pair, bytes: number) => {
      pair.client.pause();
      const before = relay.splicer.queuedBytes;
      for (let i = 0; relay.splicer.queuedBytes - before < bytes && pair.triggers.length === 0; i++) {
        pair.host.send(numbered(i, 65_536));
        if (pairs.some((one) => one.triggers.length > 0)) break;
        await until(() => pair.host.bufferedAmount === 0);
        await new Promise(setImmediate);
      }
    };
    await fill(pairs[3]!, 8.2 * MIB);
    for (const pair of pairs) if (pair !== pairs[3]) await fill(pair, 7.5 * MIB);
    expect(pairs.map((pair) => pair.triggers)).toEqual(pairs.map((_, i) => (i === 3 ? ['queue-limit'] : [])));
    expect(await pairs[3]!.hostClosed).toEqual({ code: 4429, reason: 'relay queue limit exceeded' });
    expect(relay.splicer.queuedBytes).toBeLessThanOrEqual(LIMITS.processQueueBytes);
  });
});

describe('ends', () => {
  it.each([
    ['client', 'client-closed'],
    ['host', 'host-closed'],
  ] as const)('closes the other side 4408 when the %s leaves', async (side, trigger) => {
    const pair = await pairOf();
    pair[side].close(1000, 'bye');
    const other = side === 'client' ? pair.hostClosed : pair.clientClosed;
    expect(await other).toEqual({ code: 4408, reason: 'peer connection dropped' });
    expect(pair.triggers).toEqual([trigger]);
    expect(await metric('orca_relay_splice_closes_total')).toBe(
      `orca_relay_splice_closes_total{trigger="${trigger}"} 1`,
    );
  });

  it('names the end of a peer that breaks the protocol', async () => {
    const pair = await pairOf();
    pair.client.send(Buffer.from([0xff]), { binary: false });
    await pair.hostClosed;
    expect(pair.triggers).toEqual(['client-error']);
  });

  it('sends what waits to the one that is left before it closes', async () => {
    const pair = await pairOf();
    const seen = follow(pair.client);
    await stall(pair, 65_536, 100);
    await until(() => pair.host.bufferedAmount === 0 || relay.splicer.queuedBytes > LIMITS.spliceHighWaterBytes);
    pair.client.resume();
    pair.host.close(1000);
    expect(await pair.clientClosed).toEqual({ code: 4408, reason: 'peer connection dropped' });
    expect([seen.count, seen.ordered]).toEqual([100, true]);
    expect(relay.splicer.queuedBytes).toBe(0);
  });

  it('sends frames of the same turn before it closes', async () => {
    const pair = await pairOf();
    const seen = follow(pair.client);
    for (let i = 0; i < 50; i++) pair.host.send(numbered(i, 100));
    pair.host.close(1000);
    await pair.clientClosed;
    expect(seen).toEqual({ count: 50, bytes: 5_000, ordered: true });
  });

  it('cuts off a survivor that takes nothing for 10 s', async () => {
    const clock = new HandClock();
    const pair = await pairOf({ clock, pausing: false });
    await stall(pair, 65_536, 100);
    await until(() => pair.host.bufferedAmount === 0);
    pair.host.close(1000);
    await until(() => pair.triggers.length === 1);
    expectWedgeTime(await advanceUntil(clock, () => relay.splicer.queuedBytes === 0));
    await until(() => pair.ends.client === 1);
    clock.advance(500);
    expect(clock.armed).toBe(0);
  });

  it('is closed from outside with the given reason, on both sides, once', async () => {
    const pair = await pairOf();
    pair.splice!.close('relay draining');
    pair.splice!.close('control lease expired');
    expect(await pair.clientClosed).toEqual({ code: 4503, reason: 'relay draining' });
    expect(await pair.hostClosed).toEqual({ code: 4503, reason: 'relay draining' });
    expect(pair.triggers).toEqual(['external']);
  });

  it('closed from outside, cuts off a phone that never reads after 1 s and releases it once', async () => {
    const pair = await pairOf();
    await stall(pair, 65_536, 256);
    const before = performance.now();
    pair.splice!.close('relay draining');
    expect(await pair.hostClosed).toEqual({ code: 4503, reason: 'relay draining' });
    expect(pair.ends).toEqual({ client: 0, host: 1 });
    await until(() => pair.ends.client === 1);
    expect(performance.now() - before).toBeGreaterThan(900);
    expect(performance.now() - before).toBeLessThan(10_000);
    expect(pair.ends).toEqual({ client: 1, host: 1 });
    expect(relay.splicer.queuedBytes).toBe(0);
  });

  it('refuses to join a peer that has gone, and closes the other', async () => {
    relay = await startSpliceRelay();
    const first = await relay.pair();
    first.client.terminate();
    await first.hostClosed;
    const again = relay.splicer.join(first.splice!.peer('client'), first.splice!.peer('host'), () => {});
    expect(again).toBeNull();
    expect(await metric('orca_relay_splice_closes_total')).toContain('trigger="peer-gone"} 1');
  });

  it('counts every trigger under its own name', () => {
    expect(new Set(SPLICE_TRIGGERS).size).toBe(10);
    relay.stop();
  });
});
