import { afterEach, describe, expect, test } from 'vitest';
import { DeadCellVerdicts } from '../../server/director/dead-cell-verdicts.ts';
import type { PageReply } from '../../server/director/seat-feed-client.ts';
import { SeatMap } from '../../server/director/seat-map.ts';
import { SeatPoller } from '../../server/director/seat-poller.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics } from '../../server/metrics.ts';
import type { CellRow } from '../../server/sql-interface.ts';
import { HandClock } from '../support/hand-clock.ts';
import { FeedCell, rowOf } from './support/feed-cell.ts';

/** Verdicts by the poller's own rounds and outcomes, put together as a director does; the ways to the cells are the test's. */

/** How a poll of a cell ends, so long after the failures began; null: it is never answered. */
type Way = (sinceMs: number) => 'page' | 'hangs' | Extract<PageReply, { ok: false }>['failure'];

const page: Way = () => 'page';
const STEP_MS = 250;

class Director {
  readonly clock = new HandClock();
  readonly lines: Record<string, unknown>[] = [];
  readonly ways: Map<string, Way>;
  list: readonly CellRow[];
  readonly verdicts: DeadCellVerdicts;
  readonly #poller: SeatPoller;
  readonly #cells = new Map<string, FeedCell>();
  #began = 0;

  constructor(list: readonly CellRow[], ways: readonly [string, Way][] = []) {
    this.list = list;
    this.ways = new Map(ways);
    const { clock } = this;
    const destination = { write: (line: string) => void this.lines.push(JSON.parse(line) as Record<string, unknown>) };
    const log = createLogger({ role: 'director', destination });
    const metrics = createMetrics();
    this.verdicts = new DeadCellVerdicts(log, metrics, clock);
    this.#poller = new SeatPoller({
      map: new SeatMap(clock, { retentionMs: 60_000 }),
      cells: () => this.list,
      feedCells: 'all',
      placementOn: true,
      fetchPage: async ({ cellId }, { cursor }) => {
        const end = (this.ways.get(cellId) ?? page)(clock.now() - this.#began);
        if (end === 'hangs') return new Promise(() => undefined);
        if (end !== 'page') return { ok: false, failure: end };
        const cell = this.#cells.get(cellId) ?? new FeedCell(cellId);
        this.#cells.set(cellId, cell);
        return { ok: true, page: cell.page(cursor) };
      },
      log,
      metrics,
      clock,
      peerTime: clock,
      onRound: ({ cells, lateMs }) => this.verdicts.round(cells, lateMs),
      onPolled: ({ cellId, outcome }) => this.verdicts.polled(cellId, outcome),
    });
    this.#poller.start();
  }

  /** What fails from now on. */
  breaks(way: Way, ...cellIds: string[]): void {
    this.#began = this.clock.now();
    for (const cellId of cellIds) this.ways.set(cellId, way);
  }

  async pass(ms: number, look: (sinceMs: number) => void = () => undefined): Promise<void> {
    for (let passed = 0; passed < ms; passed += STEP_MS) {
      this.clock.advance(Math.min(STEP_MS, ms - passed));
      await new Promise((resolve) => setImmediate(resolve));
      look(this.clock.now() - this.#began);
    }
  }

  said(cellId: string): string {
    const verdict = this.verdicts.of(cellId);
    return verdict.verdict === 'withheld' ? verdict.reason : verdict.verdict;
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }
}

const cellsIn = (region: string, count: number): CellRow[] =>
  Array.from({ length: count }, (_, n) => ({ ...rowOf(`${region}-${n}`), region, admit_mode: 'reserve' as const }));
const eight = () => [...cellsIn('us', 4), ...cellsIn('eu', 4)];
const X = 'us-0';

let director: Director;
afterEach(() => director.stop());

async function started(list: readonly CellRow[] = eight()): Promise<void> {
  director = new Director(list);
  await director.pass(3_000);
}

describe('the verdict by the real poller', () => {
  test.each(['unreachable', 'gateway'] as const)('1, 14 a cell that is %s is dead 45 s on, not before', async (end) => {
    await started();
    director.breaks(() => end, X);
    await director.pass(60_000, (since) => {
      if (since < 45_000) expect(director.said(X)).toBe('not-dead');
      if (since > 47_000) expect(director.said(X)).toBe('dead');
    });
  });

  test('1, 14 a cell that never answers is dead by its polls that ran out of time', async () => {
    await started();
    director.breaks(() => 'hangs', X);
    await director.pass(44_000, () => expect(director.said(X)).toBe('not-dead'));
    await director.pass(8_000);
    expect(director.said(X)).toBe('dead');
  });

  test.each(['unauthorized', 'no_feed', 'server_error', 'malformed', 'unminted'] as const)(
    '14 %s for 60 s makes nobody dead',
    async (end) => {
      await started();
      director.breaks(() => end, X);
      await director.pass(60_000, () => expect(director.said(X)).toBe('not-dead'));
    },
  );

  test('4 one answer in the middle begins anew', async () => {
    await started();
    director.breaks((since) => (since > 30_000 && since < 32_000 ? 'page' : 'unreachable'), X);
    await director.pass(75_000, () => expect(director.said(X)).toBe('not-dead'));
    await director.pass(4_000);
    expect(director.said(X)).toBe('dead');
  });

  test('5, 9 of five cells: withheld for the sample, said once a minute', async () => {
    await started([...cellsIn('us', 3), ...cellsIn('eu', 2)]);
    director.breaks(() => 'unreachable', X);
    await director.pass(46_000);
    await director.pass(130_000, () => expect(director.said(X)).toBe('sample'));
    const said = director.lines.filter(({ event }) => event === 'orca_relay_dead_cell_verdict_withheld');
    expect(said).toHaveLength(3);
  });

  test('7 a region that fails whole is withheld; two of its six are both dead', async () => {
    const fleet = [...cellsIn('us', 28), ...cellsIn('asia', 6)];
    await started(fleet);
    director.breaks(() => 'unreachable', ...cellsIn('asia', 6).map(({ cell_id }) => cell_id));
    await director.pass(50_000);
    expect(director.said('asia-0')).toBe('region');
    await director.stop();
    await started(fleet);
    director.breaks(() => 'unreachable', 'asia-0', 'asia-1');
    await director.pass(50_000);
    expect(['asia-0', 'asia-1'].map((cell) => director.said(cell))).toEqual(['dead', 'dead']);
  });

  test('8 a partition that comes over the cells one by one makes none dead at any instant', async () => {
    await started([...cellsIn('us', 28), ...cellsIn('asia', 6)]);
    const asia = cellsIn('asia', 6).map(({ cell_id }) => cell_id);
    for (const [n, cell] of asia.entries()) {
      director.breaks(() => 'unreachable', cell);
      await director.pass(n % 2 === 0 ? 2_000 : 250);
    }
    await director.pass(70_000, () => {
      for (const cell of asia) expect(director.said(cell)).not.toBe('dead');
    });
  });

  test('10, 11, 12 a director that starts while the cell is dead decides after 45 s; peers without a page count nowhere', async () => {
    director = new Director(eight(), [[X, () => 'unreachable']]);
    await director.pass(44_000, () => expect(director.said(X)).toBe('not-dead'));
    await director.pass(4_000);
    expect(director.said(X)).toBe('dead');
    await director.stop();
    const legacy = eight().map(({ cell_id }): [string, Way] => [cell_id, () => 'no_feed']);
    director = new Director(eight(), [...legacy, [X, () => 'unreachable']]);
    await director.pass(50_000);
    expect(director.said(X)).toBe('sample');
  });

  test('15 the counts are of the list that the last round polled', async () => {
    await started(cellsIn('us', 3));
    director.breaks(() => 'unreachable', 'us-0', 'us-1');
    await director.pass(46_000);
    director.list = [...cellsIn('us', 3), ...cellsIn('eu', 3)];
    expect(director.verdicts.of('us-0')).toMatchObject({ verdict: 'withheld', feedCells: 3, failing: 2 });
  });

  test('17 of two directors only the one whose polls fail decides', async () => {
    await started();
    const other = new Director(eight());
    try {
      director.breaks(() => 'unreachable', X);
      await Promise.all([director.pass(50_000), other.pass(50_000)]);
      expect([director.said(X), other.said(X)]).toEqual(['dead', 'not-dead']);
    } finally {
      await other.stop();
    }
  });
});
