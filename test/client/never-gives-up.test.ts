import { describe, expect, test } from 'vitest';
import { createHost, createPhone, newHostKeys, newResumeToken, type Ports } from '../../client/index.ts';
import type { OpenSocket } from '../../client/socket.ts';
import { deriveRelayHostId } from '../../contract/host-proof.ts';
import { ManualClock } from './support/manual-clock.ts';
import { seededRandom } from './support/seeded-random.ts';

const HOUR_MS = 3_600_000;
const ORIGINS = ['https://director-a.example', 'https://director-b.example'];

/** A network on which nothing arrives: each dial ends in one of the ways that dials end. */
function deadNetwork(clock: ManualClock, random: () => number): Ports & { dials: number; posts: number } {
  const ends = [
    { code: 1006, reason: 'connect ECONNREFUSED' },
    { code: 1006, reason: '', status: 503, retryAfterMs: 2_000 },
    { code: 1006, reason: '', status: 429 },
    { code: 4429, reason: 'relay temporarily unavailable' },
    { code: 4503, reason: 'relay draining' },
    { code: 4409, reason: 'wrong assignment epoch' },
    { code: 4404, reason: 'relay connection rejected' },
    null,
  ];
  const openSocket: OpenSocket = (_target, handlers) => {
    network.dials += 1;
    let over = false;
    const end = (how: Parameters<typeof handlers.ended>[0]) => {
      if (over) return;
      over = true;
      handlers.ended(how);
    };
    const how = ends[Math.floor(random() * ends.length)];
    // The last one never ends by itself: the client's own time limit must do it.
    if (how) clock.after(random() * 500, () => end(how));
    const terminate = () => void clock.after(0, () => end({ code: 1006, reason: '' }));
    return {
      send: () => true,
      nextTurn: (run) => void setImmediate(run),
      buffered: () => 0,
      pauseReading: () => false,
      resumeReading() {},
      ping: () => true,
      close: terminate,
      terminate,
    };
  };
  const network = { openSocket, fetch: deadFetch, clock, random, dials: 0, posts: 0 };
  return network;

  async function deadFetch(): Promise<Response> {
    network.posts += 1;
    const dice = random();
    if (dice < 0.3) throw new TypeError('fetch failed', { cause: new Error('connect ECONNREFUSED') });
    if (dice < 0.5) return new Response('<html>bad gateway</html>', { status: 502 });
    if (dice < 0.7) {
      const headers = { 'retry-after': '5' };
      return Response.json({ error: 'assignments_temporarily_unavailable' }, { status: 503, headers });
    }
    if (dice < 0.9) return new Promise(() => {});
    return Response.json({ v: 1, surprise: true });
  }
}

/** The client reads its own token without verifying it; a signature would need real time. */
function relayToken(keys: { publicKey: Uint8Array }, clock: ManualClock) {
  const expiresAt = clock.now() + 300_000;
  const relayHostId = deriveRelayHostId(keys.publicKey);
  const claims = { sub: 'user', prof: 'profile', purpose: 'host-control', relayHostId, exp: expiresAt / 1_000 };
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  return { relayToken: `${part({ alg: 'none' })}.${part(claims)}.`, expiresAt };
}

describe('incident 14: fifteen hours of failing dials always leave a retry armed', () => {
  test.each([1, 2, 3])('a phone goes on (seed %i)', async (seed) => {
    const clock = new ManualClock();
    const network = deadNetwork(clock, seededRandom(seed));
    const phone = createPhone(
      {
        directorOrigins: ORIGINS,
        relayHostId: 'abcdefghijklmnop',
        endpoint: { cellUrl: 'https://cell.example', assignmentEpoch: 3 },
        resumeTokens: [newResumeToken().token],
      },
      network,
    );
    phone.start();
    for (let hour = 0; hour < 15; hour += 1) {
      const dialsBefore = network.dials;
      await clock.advance(HOUR_MS);
      expect(clock.armed).toBeGreaterThan(0);
      // Thirty seconds at most between two tries, and as long again for a director and a cell that never answer.
      expect(network.dials - dialsBefore).toBeGreaterThan(40);
      expect(network.dials - dialsBefore).toBeLessThan(1_000);
    }
    phone.stop();
    await clock.advance(60_000);
    expect(clock.armed).toBe(0);
  });

  test.each([1, 2, 3])('a host goes on (seed %i)', async (seed) => {
    const clock = new ManualClock();
    const network = deadNetwork(clock, seededRandom(seed));
    const keys = newHostKeys();
    const host = createHost(
      {
        directorOrigins: ORIGINS,
        keys,
        appVersion: 'test',
        tokens: async () => {
          if (network.random() < 0.3) throw new Error('no network');
          return relayToken(keys, clock);
        },
        onConnection() {},
      },
      network,
    );
    host.start();
    for (let hour = 0; hour < 15; hour += 1) {
      const postsBefore = network.posts;
      await clock.advance(HOUR_MS);
      expect(clock.armed).toBeGreaterThan(0);
      expect(network.posts - postsBefore).toBeGreaterThan(5);
      // One ask in five seconds at most, of each of the two.
      expect(network.posts - postsBefore).toBeLessThan((2 * HOUR_MS) / 5_000);
    }
    host.stop();
    await clock.advance(60_000);
    expect(clock.armed).toBe(0);
  });
});
