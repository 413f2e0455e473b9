import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import { type FeedFailure, MEANING } from '../../server/director/feed-outcomes.ts';
import { createFetchPage } from '../../server/director/seat-feed-client.ts';
import { ServiceTokens } from '../../server/director/service-tokens.ts';
import { HandClock } from '../support/hand-clock.ts';
import { fullPage, hostOf, seatOf } from './support/feed.ts';

/** Whatever may answer at a cell's address. */

let server: Server;
let url: string;
let answer: (request: IncomingMessage, response: ServerResponse) => void;
let asked: IncomingMessage[];
let sockets: Set<unknown>;

beforeAll(async () => {
  server = createServer((request, response) => {
    asked.push(request);
    sockets.add(request.socket);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  [asked, sockets] = [[], new Set()];
});

const tokens = new ServiceTokens('a signing key of thirty-two bytes or more', 'd1', new HandClock());
const fetchPage = createFetchPage(tokens);
const get = (signal = new AbortController().signal, at = url) =>
  fetchPage({ cellId: 'X', url: at }, { cursor: { incarnation: 'X-1', seq: 7 }, reserver: true }, signal);
const says =
  (status: number, body: string, headers: Record<string, string> = {}) =>
  (_: IncomingMessage, response: ServerResponse) => {
    response.writeHead(status, headers).end(body);
  };
const page = (seats: number, userId = 'user') =>
  JSON.stringify(
    fullPage(
      'X',
      Array.from({ length: seats }, (_, n) => seatOf({ ...hostOf(n), userId }, n + 1)),
    ),
  );

test('asks with its cursor, as one that books, with a token of this cell; again on the same connection', async () => {
  answer = says(200, page(2));
  for (let i = 0; i < 5; i++) expect(await get()).toMatchObject({ ok: true, page: { cellId: 'X' } });
  expect(asked[0]?.url).toBe('/v1/admin/cell-seats?since=X-1%3A7&reserver=1');
  expect(new Set(asked.map(({ headers }) => headers.authorization)).size).toBe(1);
  expect(sockets.size).toBeLessThanOrEqual(2);
});

test('20 000 seats of accounts with long names fit', async () => {
  answer = says(200, page(20_000, 'a'.repeat(128)));
  const reply = await get();
  expect(reply.ok && 'full' in reply.page && reply.page.full.length).toBe(20_000);
});

describe('O3, O4, O23 what ends in a failure', () => {
  const hang = (_: IncomingMessage, response: ServerResponse) => response.socket?.destroy();
  const halfway = (_: IncomingMessage, response: ServerResponse) => {
    response.writeHead(200, { 'content-length': '1000' });
    response.write('{');
    setImmediate(() => response.socket?.destroy());
  };
  test.each<[string, typeof answer, FeedFailure, 'answered' | 'unanswered']>([
    ['a reset', hang, 'unreachable', 'unanswered'],
    ['a reset in the middle', halfway, 'unreachable', 'unanswered'],
    ['502', says(502, 'bad gateway'), 'gateway', 'unanswered'],
    ['503', says(503, ''), 'gateway', 'unanswered'],
    ['504', says(504, ''), 'gateway', 'unanswered'],
    ['500', says(500, '{}'), 'server_error', 'answered'],
    ['501', says(501, '{}'), 'server_error', 'answered'],
    ['401', says(401, '{"error":"invalid_token"}'), 'unauthorized', 'answered'],
    ['403', says(403, ''), 'unauthorized', 'answered'],
    ['404', says(404, '{"error":"cell_only"}'), 'no_feed', 'answered'],
    ['400', says(400, '{}'), 'refused', 'answered'],
    ['a redirect', says(302, '', { location: 'http://127.0.0.1:1/' }), 'refused', 'answered'],
    ['204', says(204, ''), 'refused', 'answered'],
    ['no JSON', says(200, '<html>'), 'malformed', 'answered'],
    ['other JSON', says(200, '{"v":2}'), 'malformed', 'answered'],
    ['a body without an end', says(200, ' '.repeat(LIMITS.maxFeedPageBytes + 1)), 'too_large', 'answered'],
  ])('%s', async (_, how, failure, liveness) => {
    answer = how;
    expect(await get()).toEqual({ ok: false, failure });
    expect(MEANING[failure].liveness).toBe(liveness);
  });

  test('nobody at the port, and no such name', async () => {
    for (const at of ['http://127.0.0.1:1', 'http://no-such-cell.invalid']) {
      expect(await get(undefined, at)).toEqual({ ok: false, failure: 'unreachable' });
    }
  });

  test('an answer that does not come, given up', async () => {
    const abort = new AbortController();
    answer = () => setImmediate(() => abort.abort());
    expect((await get(abort.signal)).ok).toBe(false);
  });

  test('a token that cannot be made says nothing of the cell', async () => {
    const broken = createFetchPage({
      for: () => Promise.reject(new Error('no key')),
      forget: () => undefined,
    } as never);
    const reply = await broken({ cellId: 'X', url }, { cursor: null, reserver: false }, new AbortController().signal);
    expect(reply).toEqual({ ok: false, failure: 'unminted' });
    expect([MEANING.unminted.liveness, asked]).toEqual(['neither', []]);
  });
});

test('a token that a cell refused is not shown again', async () => {
  const clock = new HandClock();
  const own = createFetchPage(new ServiceTokens('a signing key of thirty-two bytes or more', 'd1', clock));
  const ask = () => own({ cellId: 'X', url }, { cursor: null, reserver: false }, new AbortController().signal);
  answer = says(401, '{}');
  await ask();
  clock.advance(1_000);
  await ask();
  expect(new Set(asked.map(({ headers }) => headers.authorization)).size).toBe(2);
});
