import { setImmediate as turn } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from 'vitest';
import { reserveRequest } from '../../contract/booking.ts';
import { LIMITS } from '../../contract/limits.ts';
import { type Booked, BookingClient } from '../../server/director/booking-client.ts';
import type { CellPost } from '../../server/director/cell-post.ts';
import { createMetrics } from '../../server/metrics.ts';
import { HandClock } from '../support/hand-clock.ts';

const CELL = { cellId: 'c-1', url: 'https://c-1.example.test' };
const host = (n: number, userId = 'user-1') => ({ userId, relayHostId: `host-${String(n).padStart(11, '0')}` });

interface Sent {
  cellId: string;
  path: string;
  json: string;
  signal: AbortSignal;
  answer(value: unknown): void;
  fail(): void;
}

let clock: HandClock;
let sent: Sent[];
let client: BookingClient;

const post: CellPost = (cell, path, json, signal) =>
  new Promise((answer, reject) =>
    sent.push({ cellId: cell.cellId, path, json, signal, answer, fail: () => reject(new Error('reset')) }),
  );

beforeEach(() => {
  clock = new HandClock();
  sent = [];
  client = new BookingClient({ clock, peerTime: clock, metrics: createMetrics(), post, directorId: 'director-1' });
});

const itemsOf = ({ json }: Sent) => reserveRequest.parse(JSON.parse(json)).items;
const yes = (count: number) => ({ v: 1, results: Array.from({ length: count }, () => ({ outcome: 'ok' })) });

describe('bookings go together (89)', () => {
  test('those of 5 ms to one cell in one request, in order, each with its own answer', async () => {
    const booked = [1, 2, 3].map((n) => client.book(CELL, { host: host(n), epoch: n, sticky: n === 2 }));
    clock.advance(LIMITS.bookingBatchMs - 1);
    expect(sent).toHaveLength(0);
    clock.advance(1);
    expect(sent).toHaveLength(1);
    expect(sent[0]).toMatchObject({ cellId: 'c-1', path: '/internal/reserve' });
    expect(itemsOf(sent[0] as Sent)).toEqual([
      { ...host(1), epoch: 1, ttlMs: 30_000 },
      { ...host(2), epoch: 2, ttlMs: 30_000, sticky: true },
      { ...host(3), epoch: 3, ttlMs: 30_000 },
    ]);
    sent[0]?.answer({ v: 1, results: [{ outcome: 'ok' }, { outcome: 'full' }, { outcome: 'seated-newer', epoch: 9 }] });
    expect(await Promise.all(booked)).toEqual([
      { outcome: 'ok' },
      { outcome: 'full' },
      { outcome: 'seated-newer', epoch: 9 },
    ]);
  });

  test('64 at once, without waiting', () => {
    for (let n = 0; n < 65; n++) void client.book(CELL, { host: host(n), epoch: 1, sticky: false });
    expect(sent).toHaveLength(1);
    expect(itemsOf(sent[0] as Sent)).toHaveLength(64);
    clock.advance(LIMITS.bookingBatchMs);
    expect(itemsOf(sent[1] as Sent)).toHaveLength(1);
  });

  test('never more than 16 KiB of body, however long the names of accounts are', () => {
    for (let n = 0; n < 64; n++) void client.book(CELL, { host: host(n, 'é'.repeat(256)), epoch: 1, sticky: false });
    clock.advance(LIMITS.bookingBatchMs);
    expect(sent.length).toBeGreaterThan(1);
    for (const { json } of sent) expect(Buffer.byteLength(json)).toBeLessThanOrEqual(LIMITS.maxBookingRequestBytes);
    expect(sent.flatMap(itemsOf)).toHaveLength(64);
  });

  test('dry ones and those of another cell by themselves', () => {
    const ask = { host: host(1), epoch: 1, sticky: false };
    void client.book(CELL, ask);
    void client.book(CELL, ask, { dryRun: true });
    void client.book({ ...CELL, cellId: 'c-2' }, ask);
    clock.advance(LIMITS.bookingBatchMs);
    expect(sent.map(({ cellId, json }) => [cellId, JSON.parse(json).dryRun])).toEqual([
      ['c-1', undefined],
      ['c-1', true],
      ['c-2', undefined],
    ]);
  });
});

describe('whatever goes wrong leaves every ask of a request unreachable, and is not sent again (89, O16)', () => {
  const bookTwo = async (reply: (request: Sent) => void): Promise<Booked[]> => {
    const booked = [1, 2].map((n) => client.book(CELL, { host: host(n), epoch: 1, sticky: false }));
    clock.advance(LIMITS.bookingBatchMs);
    reply(sent[0] as Sent);
    const answers = await Promise.all(booked);
    clock.advance(60_000);
    expect(sent).toHaveLength(1);
    return answers;
  };

  test.each<[string, (request: Sent) => void]>([
    ['no connection', (request) => request.fail()],
    ['no answer for 1 s', () => clock.advance(LIMITS.bookingTimeoutMs)],
    ['no JSON object', (request) => request.answer('ok')],
    ['another version', (request) => request.answer({ ...yes(2), v: 2 })],
    ['too few results', (request) => request.answer(yes(1))],
    ['too many results', (request) => request.answer(yes(3))],
    ['a result without outcome', (request) => request.answer({ v: 1, results: [{}, { outcome: 'ok' }] })],
  ])('%s', async (_, reply) => {
    expect(await bookTwo(reply)).toEqual([{ outcome: 'unreachable' }, { outcome: 'unreachable' }]);
  });

  test('a late answer is not heard, and its request is cut off', async () => {
    expect(await bookTwo(() => clock.advance(LIMITS.bookingTimeoutMs))).toEqual([
      { outcome: 'unreachable' },
      { outcome: 'unreachable' },
    ]);
    expect(sent[0]?.signal.aborted).toBe(true);
    sent[0]?.answer(yes(2));
    await turn();
    expect(clock.armed).toBe(0);
  });

  test('an outcome that this director does not know is a no, and one without its epoch too', async () => {
    const results = [{ outcome: 'later' }, { outcome: 'seated-newer' }];
    expect(await bookTwo((request) => request.answer({ v: 1, results }))).toEqual([
      { outcome: 'unknown' },
      { outcome: 'unknown' },
    ]);
  });
});

test('a cell that does not answer holds 1 024 asks, and further ones are unreachable at once (89)', async () => {
  const held = Array.from({ length: 1_024 }, (_, n) => client.book(CELL, { host: host(n), epoch: 1, sticky: false }));
  expect(await client.book(CELL, { host: host(2_000), epoch: 1, sticky: false })).toEqual({ outcome: 'unreachable' });
  expect(sent).toHaveLength(16);
  for (const request of sent) request.answer(yes(64));
  await Promise.all(held);
  void client.book(CELL, { host: host(2_001), epoch: 1, sticky: false });
  clock.advance(LIMITS.bookingBatchMs);
  expect(sent).toHaveLength(17);
});

test('what is still unsent when the director stops is unreachable', async () => {
  const booked = client.book(CELL, { host: host(1), epoch: 1, sticky: false });
  client.stop();
  expect(await booked).toEqual({ outcome: 'unreachable' });
  expect(clock.armed).toBe(0);
});
