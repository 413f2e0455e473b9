import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import type { CellAddress } from '../../server/director/cell-post.ts';
import type { PageReply, PageRequest } from '../../server/director/seat-feed-client.ts';
import { type CellEvent, SeatMap } from '../../server/director/seat-map.ts';
import { SeatPoller, type SeatPollerOptions } from '../../server/director/seat-poller.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics, type Metrics } from '../../server/metrics.ts';
import type { CellRow } from '../../server/sql-interface.ts';
import { HandClock } from '../support/hand-clock.ts';
import { hostOf } from './support/feed.ts';
import { FeedCell, rowOf } from './support/feed-cell.ts';

/** The poller over real seat logs, with the way between them in the test's hand. */

interface Asked extends PageRequest {
  cellId: string;
  signal: AbortSignal;
}

type Way = (request: Asked) => PageReply | Promise<PageReply>;

const h1 = hostOf(1);
const h2 = hostOf(2);

let clock: HandClock;
let metrics: Metrics;
let lines: Record<string, unknown>[];
let map: SeatMap;
let poller: SeatPoller;
let x: FeedCell;
let y: FeedCell;
let list: readonly CellRow[] | null;
let asked: Asked[];
let events: CellEvent[];
/** What lies between the director and a cell; absent: nothing. */
let ways: Map<string, Way>;

const log = createLogger({
  role: 'director',
  destination: { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
});

beforeEach(() => {
  [clock, metrics, lines, asked, events, ways] = [new HandClock(), createMetrics(), [], [], [], new Map()];
  [x, y] = [new FeedCell('X'), new FeedCell('Y')];
  list = [rowOf('X'), rowOf('Y')];
  build();
});
afterEach(async () => {
  await poller.stop();
  expect(clock.armed).toBe(0);
});

function build(options: Partial<SeatPollerOptions> = {}): void {
  map = new SeatMap(clock, { retentionMs: 60_000 });
  map.onCell((event) => events.push(event));
  const fetchPage = async ({ cellId }: CellAddress, request: PageRequest, signal: AbortSignal): Promise<PageReply> => {
    const one = { cellId, signal, ...request };
    asked.push(one);
    const way = ways.get(cellId);
    return way ? way(one) : { ok: true, page: cellOf(cellId).page(request.cursor) };
  };
  const fixed = { map, cells: () => list, feedCells: 'all', placementOn: true, fetchPage } as const;
  poller = new SeatPoller({ ...fixed, log, metrics, clock, peerTime: clock, ...options });
}

const cellOf = (cellId: string) => (cellId === 'X' ? x : y);
const fails =
  (failure: 'gateway' | 'no_feed' | 'unauthorized' | 'unreachable'): Way =>
  () => ({ ok: false, failure });
const never: Way = () => new Promise(() => undefined);

/** Lets everything that was answered be taken in. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

async function pass(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 500) {
    clock.advance(Math.min(500, left));
    await settle();
  }
}

async function begin(): Promise<void> {
  poller.start();
  await settle();
}

const polls = (cellId: string) => asked.filter((one) => one.cellId === cellId);
const last = (cellId: string) => polls(cellId).at(-1) as Asked;
const linesOf = (event: string) => lines.filter((line) => line.event === event);
const metric = (name: string) => metrics.registry.getSingleMetricAsString(name);

test('86 everything at first, then what changed since, once a second', async () => {
  x.join(h1, 5);
  await begin();
  expect(map.owner(h1)).toMatchObject({ cellId: 'X', epoch: 5 });
  expect(last('X')).toMatchObject({ cursor: null, reserver: true });
  x.join(h2, 2);
  x.leave(h1);
  await pass(1_000);
  expect(last('X').cursor).toEqual({ incarnation: 'X-1', seq: 1 });
  expect([map.owner(h1), map.owner(h2)?.epoch]).toEqual([null, 2]);
  expect(map.leavers(h1)).toEqual([expect.objectContaining({ cellId: 'X', epoch: 5, closeCode: 1000 })]);
  await pass(3_000);
  expect(polls('X')).toHaveLength(5);
});

test('86 a hole in the changes: the seats stay, and the next poll asks for all of them', async () => {
  x.join(h1, 5);
  await begin();
  x.join(h2, 2);
  x.leave(h1);
  ways.set('X', () => ({ ok: true, page: x.page({ incarnation: 'X-1', seq: 2 }) }));
  await pass(1_000);
  expect(map.cell('X')?.status).toBe('unverifiable');
  expect([map.owner(h1)?.freshness, map.owner(h2)]).toEqual(['retained', null]);
  ways.delete('X');
  await pass(1_000);
  expect(last('X').cursor).toBeNull();
  expect([map.owner(h1), map.owner(h2)?.freshness]).toEqual([null, 'fresh']);
  expect(events.slice(2)).toEqual([{ type: 'gap', cellId: 'X' }]);
});

test('86 a timeout keeps seats and cursor, and holds up no other cell', async () => {
  x.join(h1, 5);
  await begin();
  ways.set('X', never);
  await pass(1_000);
  const hung = last('X');
  await pass(1_000);
  expect(polls('X')).toHaveLength(2);
  expect(polls('Y')).toHaveLength(3);
  expect(hung.signal.aborted).toBe(false);
  await pass(1_000);
  expect(hung.signal.aborted).toBe(true);
  expect(map.owner(h1)).toMatchObject({ cellId: 'X', freshness: 'retained' });
  expect(linesOf('orca_relay_owner_map_refresh')).toEqual([
    expect.objectContaining({ cellId: 'X', outcome: 'timeout', action: 'retained', entries: 1, ageMs: 3_000 }),
  ]);
  ways.delete('X');
  await pass(1_000);
  expect(last('X').cursor).toEqual({ incarnation: 'X-1', seq: 1 });
  expect(map.owner(h1)?.freshness).toBe('fresh');
});

test('86 404: no feed, complete all the same; its numbers and cursor are forgotten, its switch to reserve is not', async () => {
  x.head = { admitModeRaw: 'reserve' };
  x.join(h1, 5);
  await begin();
  expect(map.cell('X')).toMatchObject({ status: 'live', mode: 'reserve', units: 1, ceiling: 900 });
  ways.set('X', fails('no_feed'));
  await pass(1_000);
  expect(map.cell('X')).toMatchObject({
    status: 'no-feed',
    mode: 'reserve',
    units: null,
    ceiling: null,
    polledAgeMs: null,
  });
  expect([map.owner(h1), map.floor(h1)]).toEqual([null, 5]);
  expect(events.at(-1)).toMatchObject({ type: 'unavailable', cellId: 'X', reason: 'no_feed' });
  list = [rowOf('X', { incarnation: 'X-2' }), rowOf('Y')];
  await pass(1_000);
  expect(map.cell('X')?.mode).toBeNull();
  ways.delete('X');
  await pass(1_000);
  expect(last('X').cursor).toBeNull();
  expect(map.cell('X')).toMatchObject({ status: 'live', mode: 'reserve' });
  x.head = { admitModeRaw: 'db' };
  await pass(1_000);
  expect(map.cell('X')?.mode).toBe('db');
});

test('86 a cell that restarts is told whole, and its hosts are leavers', async () => {
  x.join(h1, 5);
  x.join(h2, 3);
  await begin();
  x.restart();
  x.join(h2, 3);
  await pass(1_000);
  expect([map.owner(h1), map.owner(h2)?.incarnation]).toEqual([null, 'X-2']);
  expect(map.leavers(h1)).toEqual([expect.objectContaining({ incarnation: 'X-1', epoch: 5, closeCode: undefined })]);
  expect(events.slice(2)).toEqual([{ type: 'gap', cellId: 'X' }]);
});

describe('86 complete', () => {
  test('only when every cell that lives has answered', async () => {
    list = null;
    ways.set('Y', fails('gateway'));
    await begin();
    expect([map.complete(), asked.length]).toEqual([false, 0]);
    list = [rowOf('X'), rowOf('Y'), rowOf('dead', { heard_age_ms: 45_001 }), rowOf('away', { rolling: true })];
    for (const id of ['dead', 'away']) ways.set(id, fails('unreachable'));
    poller.listed();
    await settle();
    expect(map.complete()).toBe(false);
    ways.set('Y', fails('no_feed'));
    await pass(1_000);
    expect(map.complete()).toBe(true);
  });

  test('a refused credential is no answer', async () => {
    ways.set('Y', fails('unauthorized'));
    await begin();
    await pass(5_000);
    expect(map.complete()).toBe(false);
  });
});

test('86 a backlog of five pages is read at once; a longer one is asked for whole', async () => {
  x.join(h1, 1);
  await begin();
  const some = (n: number) => {
    for (let i = 0; i < n; i++) x.join(h1, 1);
  };
  some(5 * LIMITS.feedPageChanges);
  await pass(1_000);
  expect(polls('X')).toHaveLength(1 + 5);
  expect(map.cell('X')?.status).toBe('live');
  some(5 * LIMITS.feedPageChanges + 1);
  await pass(1_000);
  expect(polls('X')).toHaveLength(1 + 5 + 5);
  expect(map.cell('X')?.status).toBe('unverifiable');
  expect(map.owner(h1)?.cellId).toBe('X');
  await pass(1_000);
  expect(last('X').cursor).toBeNull();
  expect(map.cell('X')?.status).toBe('live');
});

test('O24 a read that fails after its first page changes nothing', async () => {
  x.join(h1, 1);
  await begin();
  x.leave(h1);
  for (let i = 0; i < LIMITS.feedPageChanges; i++) x.join(h2, 2);
  ways.set('X', ({ cursor }) =>
    cursor?.seq === 1 ? { ok: true, page: x.page(cursor) } : { ok: false, failure: 'unreachable' },
  );
  await pass(1_000);
  expect(polls('X')).toHaveLength(3);
  expect([map.owner(h1)?.freshness, map.owner(h2)]).toEqual(['retained', null]);
  ways.delete('X');
  await pass(1_000);
  expect(polls('X').map(({ cursor }) => cursor?.seq)).toEqual([undefined, 1, 2_001, 1, 2_001]);
  expect([map.owner(h1), map.owner(h2)?.epoch]).toEqual([null, 2]);
});

test('O14 a cell that leaves the list is forgotten at once, and asked no more', async () => {
  x.join(h1, 5);
  await begin();
  ways.set('X', never);
  await pass(1_000);
  list = [rowOf('Y')];
  poller.listed();
  expect([map.owner(h1), map.cell('X'), last('X').signal.aborted]).toEqual([null, undefined, true]);
  await pass(3_000);
  expect(polls('X')).toHaveLength(2);
});

test('only the cells that it is told to read, and as no booker while placement is off', async () => {
  build({ feedCells: new Set(['Y']), placementOn: false });
  await begin();
  expect(asked.map(({ cellId, reserver }) => [cellId, reserver])).toEqual([['Y', false]]);
  expect(map.complete()).toBe(true);
});

test('another cell at the address changes nothing', async () => {
  x.join(h1, 5);
  await begin();
  ways.set('X', () => ({ ok: true, page: y.page(null) }));
  await pass(1_000);
  expect(map.owner(h1)).toMatchObject({ cellId: 'X', freshness: 'retained' });
  expect(linesOf('orca_relay_owner_map_refresh').at(-1)).toMatchObject({ outcome: 'cell_id_mismatch' });
});

test('one line for each refresh that fails, one when it succeeds again, a summary each minute; counted', async () => {
  await begin();
  ways.set('X', fails('gateway'));
  await pass(3_000);
  ways.set('X', fails('unauthorized'));
  await pass(1_000);
  ways.delete('X');
  await pass(2_000);
  expect(linesOf('orca_relay_owner_map_refresh').map(({ outcome, action }) => [outcome, action])).toEqual([
    ['gateway', 'retained'],
    ['gateway', 'retained'],
    ['gateway', 'retained'],
    ['unauthorized', 'dropped'],
    ['ok', 'replaced'],
  ]);
  ways.set('Y', fails('no_feed'));
  await pass(54_000);
  expect(linesOf('orca_relay_shadow_seat_summary')).toEqual([
    expect.objectContaining({ complete: true, cells: 2, live: 1, pending: 0, noFeed: 1, seats: 0 }),
  ]);
  expect(await metric('orca_relay_seat_feed_polls_total')).toMatch(/outcome="gateway"\} 3/);
  expect(await metric('orca_relay_owner_map_unavailable_total')).toMatch(/reason="no_feed"\} 1/);
  expect(await metric('orca_relay_seat_feed_cells')).toMatch(/status="live"\} 1/);
});

test('a listener that fails costs its own poll only', async () => {
  map.onPage((cellId) => {
    if (cellId === 'X') throw new Error('a fault');
  });
  await begin();
  await pass(1_000);
  expect(linesOf('orca_relay_shadow_seat_round_failed')).toHaveLength(2);
  expect(polls('Y')).toHaveLength(2);
});

test('a listener that fails while the list changes costs no later round', async () => {
  await begin();
  map.onCell(({ type }) => {
    if (type === 'unavailable') throw new Error('a fault');
  });
  list = [rowOf('Y')];
  poller.listed();
  expect(linesOf('orca_relay_shadow_seat_round_failed')).toHaveLength(1);
  await pass(2_000);
  expect([polls('X').length, polls('Y').length]).toEqual([1, 3]);
});

test('a round says how late it comes, and which cells it polls', async () => {
  const rounds: unknown[] = [];
  build({ onRound: ({ cells, lateMs }) => rounds.push([cells.map(({ cell_id }) => cell_id), lateMs]) });
  await begin();
  await pass(1_000);
  clock.sleep(7_000);
  await settle();
  expect(rounds).toEqual([
    [['X', 'Y'], 0],
    [['X', 'Y'], 0],
    [['X', 'Y'], 6_000],
  ]);
});

test('stopping gives up what is under way', async () => {
  ways.set('X', never);
  await begin();
  await poller.stop();
  expect(last('X').signal.aborted).toBe(true);
  expect(map.cell('X')?.status).toBe('pending');
});
