import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { Directors } from '../../client/directors.ts';
import { ManualClock } from './support/manual-clock.ts';

interface Answer {
  status: number;
  body: unknown;
  headers?: Record<string, string>;
}
type Answerer = (body: Record<string, unknown>, request: IncomingMessage) => Answer;

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** An HTTP server that says what a director might; the client is the part under test. */
async function director(answer: Answerer): Promise<{ origin: string; asked: Record<string, unknown>[] }> {
  const asked: Record<string, unknown>[] = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const body = JSON.parse(text) as Record<string, unknown>;
    asked.push(body);
    const { status, body: reply, headers } = answer(body, request);
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(typeof reply === 'string' ? reply : JSON.stringify(reply));
  });
  server.listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

const GRANT = { v: 1, cellUrl: 'https://cell.example', assignmentEpoch: 4, lease: 'a.b.c' };
const ASK = { relayHostId: 'abcdefghijklmnop', relayToken: 'token', preferredRegion: undefined };
const NOBODY = 'http://127.0.0.1:9';
const signal = new AbortController().signal;

function directors(origins: string[], clock = new ManualClock()): Directors {
  return new Directors({ fetch, clock, random: () => 0.5 }, origins);
}

describe('assign', () => {
  test('the first that answers is asked first from then on', async () => {
    const live = await director(() => ({ status: 200, body: GRANT }));
    const known = directors([NOBODY, live.origin]);
    expect(known.preferred).toBe(NOBODY);
    expect(await known.assign(ASK, signal)).toEqual({ kind: 'granted', ...GRANT });
    expect(known.inOrder()).toEqual([live.origin, NOBODY]);
    expect(live.asked).toEqual([{ v: 1, relayHostId: ASK.relayHostId, reconnect: true }]);
  });

  test('a proxy that speaks for a director is no answer, a director that says 503 is', async () => {
    const proxy = await director(() => ({ status: 502, body: '<html></html>' }));
    const busy = await director(() => ({
      status: 503,
      body: { error: 'relay_capacity_exhausted' },
      headers: { 'retry-after': '9' },
    }));
    const third = await director(() => ({ status: 200, body: GRANT }));
    const outcome = await directors([proxy.origin, busy.origin, third.origin]).assign(ASK, signal);
    expect(outcome).toEqual({
      kind: 'retry',
      reason: 'relay_capacity_exhausted',
      retryAfterMs: 9_000,
      unanswered: false,
    });
    expect(third.asked).toEqual([]);
  });

  test('400 drops the region, then `reconnect`, at once', async () => {
    const old = await director((body) =>
      'reconnect' in body ? { status: 400, body: { error: 'invalid_request' } } : { status: 200, body: GRANT },
    );
    const outcome = await directors([old.origin]).assign({ ...ASK, preferredRegion: 'asia-east2' }, signal);
    expect(outcome.kind).toBe('granted');
    expect(old.asked.map((body) => Object.keys(body).slice(2))).toEqual([
      ['reconnect', 'preferredRegion'],
      ['reconnect'],
      [],
    ]);
  });

  test.each([
    [401, 'invalid_token', 'refused'],
    [403, 'host_identity_mismatch', 'refused'],
    [409, 'assignment_not_found', 'refused'],
    [400, 'invalid_request', 'refused'],
    [408, 'timeout', 'retry'],
    [425, 'too_early', 'retry'],
    [429, 'slow_down', 'retry'],
    [500, 'internal_error', 'retry'],
    [503, 'assignment_row_busy', 'retry'],
  ])('%i %s is %s', async (status, error, kind) => {
    const one = await director(() => ({ status, body: { error } }));
    expect((await directors([one.origin]).assign(ASK, signal)).kind).toBe(kind);
  });

  test.each([
    ['an extra key', { ...GRANT, extra: 1 }],
    ['a missing key', { v: 1, cellUrl: GRANT.cellUrl, assignmentEpoch: 4 }],
    ['a cell without TLS', { ...GRANT, cellUrl: 'http://cell.example' }],
    ['a cell that is no origin', { ...GRANT, cellUrl: 'https://cell.example/path' }],
    ['no object', [1, 2]],
  ])('%s in the answer is retried like a 502', async (_what, body) => {
    const odd = await director(() => ({ status: 200, body }));
    expect(await directors([odd.origin]).assign(ASK, signal)).toMatchObject({ kind: 'retry', unanswered: true });
  });

  test('a region verdict in the answer is not minded', async () => {
    const one = await director(() => ({ status: 200, body: { ...GRANT, regionCorrection: 'nonsense' } }));
    expect((await directors([one.origin]).assign(ASK, signal)).kind).toBe('granted');
  });

  test('an answer over 16 KiB is not read to its end', async () => {
    const long = await director(() => ({ status: 200, body: { ...GRANT, lease: 'x'.repeat(20_000) } }));
    expect(await directors([long.origin]).assign(ASK, signal)).toMatchObject({
      kind: 'retry',
      reason: 'answer over 16384 bytes',
    });
  });

  test('is paced: once in five seconds, and what would wait longer than 15 s fails at once', async () => {
    let status = 200;
    const one = await director(() =>
      status === 200
        ? { status, body: GRANT }
        : { status, body: { error: 'assignment_row_busy' }, headers: { 'retry-after': '60' } },
    );
    const clock = new ManualClock();
    const known = directors([one.origin], clock);
    await known.assign(ASK, signal);
    status = 503;
    const second = known.assign(ASK, signal);
    await clock.advance(4_999);
    expect(one.asked).toHaveLength(1);
    await clock.advance(502);
    expect((await second).kind).toBe('retry');
    expect(one.asked).toHaveLength(2);
    const third = await known.assign(ASK, signal);
    expect(third).toMatchObject({ kind: 'retry', reason: 'paced', unanswered: false });
    expect(third.kind === 'retry' && third.retryAfterMs).toBeGreaterThan(50_000);
    expect(one.asked).toHaveLength(2);
  });

  test('a director that never answers is left after 10 s', async () => {
    const clock = new ManualClock();
    const silent: typeof fetch = () => new Promise(() => {});
    const known = new Directors({ fetch: silent, clock, random: Math.random }, [NOBODY]);
    const asking = known.assign(ASK, signal);
    await clock.advance(10_001);
    expect(await asking).toMatchObject({ kind: 'retry', unanswered: true, reason: 'no answer within 10000 ms' });
  });
});

describe('resolve', () => {
  test('sends the token in the body and nowhere else', async () => {
    const urls: (string | undefined)[] = [];
    const one = await director((_body, request) => {
      urls.push(request.url);
      return {
        status: 200,
        body: { v: 1, cellUrl: 'https://cell.example', assignmentEpoch: 9, leaseExpiresAt: 1_700_000_000_000 },
      };
    });
    expect(await directors([one.origin]).resolve('abcdefghijklmnop', 'T'.repeat(43), signal)).toMatchObject({
      kind: 'resolved',
      assignmentEpoch: 9,
    });
    expect(one.asked).toEqual([{ v: 1, relayHostId: 'abcdefghijklmnop', resumeToken: 'T'.repeat(43) }]);
    expect(urls).toEqual(['/v1/resolve']);
  });
});

test.each(['http://director.example', 'https://director.example/', 'director.example', ''])(
  'a director at %j is refused when it is configured',
  (origin) => {
    expect(() => directors([origin])).toThrow(TypeError);
  },
);
