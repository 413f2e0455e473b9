import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, type Node, type Seated } from '../acceptance/support/fleet.ts';
import { connectInvite, type Pair } from '../acceptance/support/parts.ts';
import type { Frame, Peer } from '../acceptance/support/peer.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { until } from '../acceptance/support/wait.ts';

const MIB = 1024 * 1024;
const FRAME = 64 * 1024;
/** Bytes that kernel buffers of a loopback connection may swallow, both ends and both hops together. */
const KERNEL_SWALLOWS = 40 * MIB;

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({
    cells: [{ region: 'pausing' }, { region: 'queueing', env: { ORCA_RELAY_SPLICE_PAUSE: 'off' } }],
  });
});
afterAll(() => fleet?.stop());

async function pairIn(region: string): Promise<{ seated: Seated; pair: Pair; cell: Node }> {
  const seated = await fleet.seatIn(region);
  return { seated, pair: await connectInvite(seated.host), cell: fleet.cellAt(seated.grant.cellUrl) };
}

async function queuedBytes(cell: Node): Promise<number> {
  return total(await scrape(cell.origin), 'orca_relay_splice_queued_bytes');
}

/** Frames that carry their own number, and one hash over all. */
function numbered(count: number, size = FRAME): { frames: Buffer[]; digest: string } {
  const hash = createHash('sha256');
  const filler = randomBytes(size);
  const frames = Array.from({ length: count }, (_, index) => {
    const frame = Buffer.from(filler);
    frame.writeUInt32BE(index);
    hash.update(frame);
    return frame;
  });
  return { frames, digest: hash.digest('hex') };
}

/** Hashes what arrives, frame after frame. */
function collect(peer: Peer): { bytes(): number; digest(): string; frames(): number } {
  const hash = createHash('sha256');
  let bytes = 0;
  let count = 0;
  peer.tap((frame: Frame) => {
    hash.update(frame.data);
    bytes += frame.data.length;
    count += 1;
    return true;
  });
  return { bytes: () => bytes, digest: () => hash.copy().digest('hex'), frames: () => count };
}

describe('a phone slower than its host', () => {
  test('1 MiB in frames of 64 KiB to a phone that stalls for 9 s arrives whole and in order', async () => {
    const { pair } = await pairIn('pausing');
    const got = collect(pair.phone.peer);
    const { frames, digest } = numbered(16);
    pair.phone.peer.socket.pause();
    for (const frame of frames) pair.data.send(frame);
    await fleet.advance(9_000, 1_000);
    pair.phone.peer.socket.resume();
    await until(
      'all of it',
      () => got.bytes(),
      (bytes) => bytes === MIB,
    );
    expect(got.digest()).toBe(digest);
  });

  test('32 MiB to a phone that stalls for 9 s, more than kernel buffers hold, arrives whole too', async () => {
    const { pair, cell } = await pairIn('pausing');
    const got = collect(pair.phone.peer);
    const { frames, digest } = numbered(512);
    pair.phone.peer.socket.pause();
    for (const frame of frames) pair.data.send(frame);
    await fleet.advance(9_000, 1_000);
    expect(await queuedBytes(cell)).toBeLessThanOrEqual(2 * MIB);
    pair.phone.peer.socket.resume();
    await until(
      'all of it',
      () => got.bytes(),
      (bytes) => bytes === 32 * MIB,
    );
    expect(got.digest()).toBe(digest);
  });

  test('64 MiB pushed at full speed to a phone that reads 4 MiB/s: whole, in order, ≤ 2 MiB in the relay', async () => {
    const { pair, cell } = await pairIn('pausing');
    const got = collect(pair.phone.peer);
    const { frames, digest } = numbered(1_024);
    const stopReading = readAt(pair.phone.peer, 4 * MIB, got);
    for (const frame of frames) pair.data.send(frame);
    let mostQueued = 0;
    let mostAtHost = 0;
    await until(
      'all of it',
      async () => {
        mostQueued = Math.max(mostQueued, await queuedBytes(cell));
        mostAtHost = Math.max(mostAtHost, pair.data.socket.bufferedAmount);
        return got.bytes();
      },
      (bytes) => bytes === 64 * MIB,
      40_000,
    );
    stopReading();
    expect(got.digest()).toBe(digest);
    expect(mostQueued).toBeLessThanOrEqual(2 * MIB);
    expect(mostAtHost).toBeGreaterThan(16 * MIB);
  });

  test('one that reads nothing while its host leaves is let go in bounded time, its unit given back once', async () => {
    const { pair, seated, cell } = await pairIn('pausing');
    const before = await fleet.units(cell);
    pair.phone.peer.socket.pause();
    const { frames } = numbered(KERNEL_SWALLOWS / FRAME);
    for (const frame of frames) pair.data.send(frame);
    await until(
      'some of it queued',
      () => queuedBytes(cell),
      (bytes) => bytes > 0,
    );
    pair.data.drop();
    // Seen at the next look (2 s), given 10 s to take what waits for it, cut off 1 s after that.
    await until(
      'both sockets given back',
      async () => {
        await fleet.advance(200, 200);
        return fleet.units(cell);
      },
      (units) => units === before - 2,
    );
    expect(await queuedBytes(cell)).toBe(0);
    expect(seated.host.peer.isOpen).toBe(true);
    expect(total(await scrape(cell.origin), 'orca_relay_cell_unit_faults')).toBe(0);
    pair.phone.peer.drop();
  });

  test('one that reads nothing for more than 10 s is wedged: 4429 to its host, the others go on', async () => {
    const { pair, seated, cell } = await pairIn('pausing');
    const other = await connectInvite(seated.host);
    pair.phone.peer.socket.pause();
    const { frames } = numbered(KERNEL_SWALLOWS / FRAME);
    for (const frame of frames) pair.data.send(frame);
    await until(
      'some of it queued',
      () => queuedBytes(cell),
      (bytes) => bytes > 0,
    );
    await fleet.advance(12_000, 1_000);
    expect(await pair.data.close(15_000)).toMatchObject({ code: 4429, reason: 'wedged relay link' });
    expect(await queuedBytes(cell)).toBe(0);
    pair.phone.peer.drop();
    other.phone.peer.send('alive');
    expect((await other.data.next()).data.toString()).toBe('alive');
  });
});

test('a host slower than its phone is treated the same way', async () => {
  const { pair, cell } = await pairIn('pausing');
  const got = collect(pair.data);
  const { frames, digest } = numbered(256);
  pair.data.socket.pause();
  for (const frame of frames) pair.phone.peer.send(frame);
  await fleet.advance(9_000, 1_000);
  expect(await queuedBytes(cell)).toBeLessThanOrEqual(2 * MIB);
  pair.data.socket.resume();
  await until(
    'all of it',
    () => got.bytes(),
    (bytes) => bytes === 16 * MIB,
  );
  expect(got.digest()).toBe(digest);
});

describe('with pausing switched off', () => {
  test('a slow phone still loses nothing within the bounds', async () => {
    const { pair, cell } = await pairIn('queueing');
    const got = collect(pair.phone.peer);
    pair.phone.peer.socket.pause();
    const { frames, digest } = numbered(64);
    for (const frame of frames) pair.data.send(frame);
    await fleet.advance(9_000, 1_000);
    expect(await queuedBytes(cell)).toBeLessThanOrEqual(8 * MIB + 256 * 1024);
    pair.phone.peer.socket.resume();
    await until(
      'all of it',
      () => got.bytes(),
      (bytes) => bytes === 64 * FRAME,
    );
    expect(got.digest()).toBe(digest);
  });

  test('beyond the bound both sides are closed 4429 with its reason', async () => {
    const { pair, cell } = await pairIn('queueing');
    pair.phone.peer.socket.pause();
    const { frames } = numbered(KERNEL_SWALLOWS / FRAME);
    for (const frame of frames) pair.data.send(frame);
    expect(await pair.data.close(15_000)).toMatchObject({ code: 4429, reason: 'relay queue limit exceeded' });
    await fleet.advance(1_200, 600);
    pair.phone.peer.socket.resume();
    expect([4429, 1006]).toContain((await pair.phone.peer.close(15_000)).code);
    expect(await queuedBytes(cell)).toBe(0);
  });
});

/** Lets a peer read so many bytes a second, by pausing its socket in between. */
function readAt(peer: Peer, bytesPerSecond: number, got: { bytes(): number }): () => void {
  const started = performance.now();
  const timer = setInterval(() => {
    const allowed = ((performance.now() - started) / 1_000) * bytesPerSecond;
    if (got.bytes() > allowed) peer.socket.pause();
    else peer.socket.resume();
  }, 5);
  return () => {
    clearInterval(timer);
    peer.socket.resume();
  };
}
