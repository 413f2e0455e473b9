import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FEED_FAILURES, type FeedFailure, MEANING } from '../../server/director/feed-outcomes.ts';
import { FeedRead } from '../../server/director/feed-read.ts';
import { type CellEvent, type Refresh, SeatMap } from '../../server/director/seat-map.ts';
import { HandClock } from '../support/hand-clock.ts';
import { changesPage, hostOf } from './support/feed.ts';
import { FeedCell } from './support/feed-cell.ts';

/**
 * A director's map against a plain model of it, through any row of joins, leaves, bookings, restarts, refreshes that end in any
 * way and order, cells that come and go, and time (O19; F1–F5, F12, F13; P1).
 */

const W = 60_000;
const CELLS = ['A', 'B'];
const HOSTS = [0, 1, 2].map(hostOf);

const cell = fc.constantFrom(...CELLS);
const host = fc.constantFrom(...HOSTS);
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('join'), cell, host, jump: fc.integer({ min: -3, max: 3 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('leave'), cell, host }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('book'), cell, host, jump: fc.integer({ min: 1, max: 5 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart'), cell }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('begin'), cell }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('succeed'), cell, which: fc.nat(3) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('fail'), cell, how: fc.constantFrom(...FEED_FAILURES) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('list'), cells: fc.subarray(CELLS) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait'), ms: fc.constantFrom(1_000, 30_000, 60_000) }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

/** What the model keeps of a cell. */
interface Model {
  /** By host: the epoch that it sits at, as the last complete read said. */
  seats: Map<string, number>;
  lastSuccess: number | null;
  open: boolean;
  applied: number;
}

interface UnderWay {
  refresh: Refresh;
  read: FeedRead;
  page: Parameters<FeedRead['take']>[0];
  seats: Map<string, number>;
}

class Run {
  readonly clock = new HandClock();
  readonly map = new SeatMap(this.clock, { retentionMs: W });
  readonly events: CellEvent[] = [];
  readonly feeds = new Map(CELLS.map((id) => [id, new FeedCell(id)]));
  readonly seated = new Map(CELLS.map((id) => [id, new Map<string, number>()]));
  readonly models = new Map<string, Model>();
  readonly underWay = new Map<string, UnderWay[]>(CELLS.map((id) => [id, []]));
  /** The highest epoch that any applied read told, a host. */
  readonly heard = new Map<string, number>();
  /** As it was at the last look. */
  readonly floors = new Map<string, number>();
  newest = 0;
  #generation = 0;

  constructor() {
    this.map.onCell((event) => this.events.push(event));
    this.list(CELLS);
  }

  do(it: Step): void {
    switch (it.do) {
      case 'join':
        this.join(it);
        break;
      case 'leave':
        this.feed(it).leave(it.host);
        this.seated.get(it.cell)?.delete(it.host.relayHostId);
        break;
      case 'book':
        this.newest += it.jump;
        this.feed(it).reserve(it.host, this.newest);
        break;
      case 'restart':
        this.feed(it).restart();
        this.seated.get(it.cell)?.clear();
        break;
      case 'begin':
        this.begin(it.cell);
        break;
      case 'succeed':
        this.succeed(it.cell, it.which);
        break;
      case 'fail':
        this.fail(it.cell, it.how);
        break;
      case 'list':
        this.list(it.cells);
        break;
      case 'wait':
        this.wait(it.ms);
    }
  }

  wait(ms: number): void {
    this.clock.advance(ms);
    for (const feed of this.feeds.values()) feed.clock.advance(ms);
    this.expire();
  }

  feed({ cell }: { cell: string }): FeedCell {
    return this.feeds.get(cell) as FeedCell;
  }

  join(it: Extract<Step, { do: string; host: unknown; jump: unknown }>): void {
    // any epoch: a late director may have booked below what others heard of
    this.newest = Math.max(1, this.newest + it.jump);
    this.#generation += 1;
    this.feed(it).join(it.host, this.newest, { generation: this.#generation });
    this.seated.get(it.cell)?.set(it.host.relayHostId, this.newest);
  }

  begin(cellId: string): void {
    const refresh = this.map.begin(cellId);
    if (refresh === null) return;
    const page = this.feed({ cell: cellId }).page(refresh.cursor);
    const seats = new Map(this.seated.get(cellId));
    this.underWay.get(cellId)?.push({ refresh, read: new FeedRead(cellId, refresh.cursor), page, seats });
  }

  /** One of those under way, old or new, ends well; each ends once. */
  succeed(cellId: string, which: number): void {
    const list = this.underWay.get(cellId) as UnderWay[];
    if (list.length === 0) this.begin(cellId);
    const [one] = list.splice(which % Math.max(1, list.length), 1);
    if (one === undefined) return;
    const step = one.read.take(one.page);
    if (step.step !== 'complete') throw new Error(`a page of a whole log is not complete: ${JSON.stringify(step)}`);
    const report = this.map.apply(one.refresh, { ok: true, read: step.read });
    const model = this.models.get(cellId);
    if (model === undefined || one.refresh.sequence < model.applied) {
      expect(report).toBeNull();
      return;
    }
    model.applied = one.refresh.sequence;
    // changes count only on the ground they were asked from
    const torn = one.refresh.cursor !== null && report?.action !== 'replaced';
    if (torn) return;
    expect(report?.action).toBe('replaced');
    model.seats = one.seats;
    model.lastSuccess = this.clock.now();
    model.open = true;
    this.hear(one.page);
  }

  hear(page: UnderWay['page']): void {
    const told = 'full' in page ? [...page.full, ...page.recentlyLeft] : page.changes;
    for (const { relayHostId, epoch } of told) {
      this.heard.set(relayHostId, Math.max(epoch, this.heard.get(relayHostId) ?? 0));
    }
  }

  fail(cellId: string, failure: FeedFailure): void {
    const refresh = this.map.begin(cellId);
    if (refresh === null) return;
    this.map.apply(refresh, { ok: false, failure });
    const model = this.models.get(cellId) as Model;
    model.applied = refresh.sequence;
    if (MEANING[failure].seats === 'drop') this.close(model);
    this.expire();
  }

  list(cellIds: readonly string[]): void {
    this.map.setCells(cellIds.map((cellId) => ({ cellId, incarnation: null, required: true })));
    for (const cellId of CELLS) {
      if (!cellIds.includes(cellId)) this.models.delete(cellId);
      else if (!this.models.has(cellId)) {
        this.models.set(cellId, {
          seats: new Map(),
          lastSuccess: null,
          open: false,
          applied: Number.POSITIVE_INFINITY,
        });
        (this.models.get(cellId) as Model).applied = (this.map.begin(cellId) as Refresh).sequence;
      }
    }
  }

  expire(): void {
    for (const model of this.models.values()) {
      if (model.open && this.clock.now() - (model.lastSuccess as number) >= W) this.close(model);
    }
  }

  close(model: Model): void {
    model.open = false;
    model.seats = new Map();
  }

  check(): void {
    for (const one of HOSTS) {
      const claims = [...this.models].flatMap(([cellId, { seats }]) => {
        const epoch = seats.get(one.relayHostId);
        return epoch === undefined ? [] : [{ cellId, epoch }];
      });
      claims.sort((a, b) => b.epoch - a.epoch);
      expect(this.map.seats(one).map(({ cellId, epoch }) => ({ cellId, epoch }))).toEqual(claims);
      expect(this.map.owner(one)?.cellId).toBe(claims[0]?.cellId);
      const floor = this.map.floor(one);
      expect(floor).toBe(this.heard.get(one.relayHostId) ?? 0);
      expect(floor).toBeGreaterThanOrEqual(this.floors.get(one.relayHostId) ?? 0);
      this.floors.set(one.relayHostId, floor);
    }
    for (const cellId of CELLS) this.checkEvents(cellId);
  }

  /** An arm opens once, closes once with a name, and is open exactly while its seats count. */
  checkEvents(cellId: string): void {
    let open = false;
    for (const event of this.events) {
      if (event.cellId !== cellId) continue;
      if (event.type === 'open') expect(open).toBe(false);
      else expect(open).toBe(true);
      open = event.type !== 'unavailable';
    }
    expect(open).toBe(this.models.get(cellId)?.open ?? false);
  }
}

test('O19 whatever happens in whatever order, the map says what the model says, and no floor falls', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 80 }), (steps) => {
      const run = new Run();
      for (const one of steps) {
        run.do(one);
        run.check();
      }
    }),
    { numRuns: 400 },
  );
});

test('O23 a refused credential, however long, is never a sign of death; nor is a cell that answers at all', () => {
  const unanswered = FEED_FAILURES.filter((failure) => MEANING[failure].liveness === 'unanswered');
  expect(unanswered).toEqual(['unreachable', 'timeout', 'gateway']);
  expect(MEANING.unauthorized.liveness).toBe('answered');
  expect(MEANING.unminted.liveness).toBe('neither');
});

test('O19 a page that no cell would write ends as a failure, not as a fault', () => {
  const change = fc.record({
    seq: fc.nat(20),
    epoch: fc.nat(9),
    generation: fc.nat(9),
    at: fc.nat(),
    kind: fc.string(),
  });
  fc.assert(
    fc.property(fc.array(change), fc.nat(30), fc.boolean(), (list, seq, more) => {
      const changes = list.map((one) => ({ ...one, ...hostOf(one.epoch) }));
      const step = new FeedRead('X', { incarnation: 'X-1', seq: 3 }).take(changesPage('X', changes, { seq, more }));
      expect(['more', 'complete', 'failed']).toContain(step.step);
    }),
  );
});
