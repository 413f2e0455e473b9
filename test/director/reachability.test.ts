import fc from 'fast-check';
import { beforeEach, describe, expect, test } from 'vitest';
import { DeadCellVerdicts } from '../../server/director/dead-cell-verdicts.ts';
import { FEED_FAILURES, type FeedFailure } from '../../server/director/feed-outcomes.ts';
import type { CompleteRead } from '../../server/director/feed-read.ts';
import type { PolledCell, Verdict } from '../../server/director/reachability.ts';
import type { RefreshOutcome } from '../../server/director/seat-map.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics } from '../../server/metrics.ts';
import { HandClock } from '../support/hand-clock.ts';
import { fullPage } from './support/feed.ts';

/** Poll reachability, scenarios 1–12, 14, 15 and 17: a clock, and polls that end as the test says. */

const PAGE: RefreshOutcome = { ok: true, read: { kind: 'full', head: fullPage('X', []) } as CompleteRead };
const failed = (failure: FeedFailure): RefreshOutcome => ({ ok: false, failure });
const TIMEOUT = failed('timeout');

type Ways = (cellId: string, sinceMs: number) => RefreshOutcome | null;

const only =
  (...silent: string[]): Ways =>
  (cellId) =>
    silent.includes(cellId) ? TIMEOUT : PAGE;

class Director {
  readonly clock = new HandClock();
  lines: Record<string, unknown>[] = [];
  readonly verdicts: DeadCellVerdicts;
  cells: PolledCell[];

  constructor(cells: PolledCell[]) {
    const destination = { write: (line: string) => void this.lines.push(JSON.parse(line) as Record<string, unknown>) };
    this.verdicts = new DeadCellVerdicts(createLogger({ role: 'director', destination }), createMetrics(), this.clock);
    this.cells = cells;
    // every cell has served a page
    this.round(() => PAGE);
  }

  round(ways: Ways, sinceMs = 0, lateMs = 0): void {
    this.verdicts.round(this.cells, lateMs);
    for (const { cell_id } of this.cells) {
      const outcome = ways(cell_id, sinceMs);
      if (outcome !== null) this.verdicts.polled(cell_id, outcome);
    }
  }

  /** A round now and each second until so long has passed; looks after each. */
  run(ms: number, ways: Ways, look: (sinceMs: number) => void = () => undefined): void {
    for (let since = 0; ; since += 1_000) {
      this.round(ways, since);
      look(since);
      if (since + 1_000 > ms) {
        this.clock.advance(ms - since);
        return;
      }
      this.clock.advance(1_000);
    }
  }

  of(cellId: string): Verdict {
    return this.verdicts.of(cellId);
  }

  said(cellId: string): string {
    const verdict = this.of(cellId);
    return verdict.verdict === 'withheld' ? verdict.reason : verdict.verdict;
  }
}

function cellsIn(region: string, count: number): PolledCell[] {
  return Array.from({ length: count }, (_, n) => ({
    cell_id: `${region}-${n}`,
    region,
    capacity_units: 900,
    admit_mode: 'reserve',
  }));
}
const ids = (region: string, count: number) => cellsIn(region, count).map(({ cell_id }) => cell_id);

/** Four cells in each of two regions. */
const eight = () => new Director([...cellsIn('us', 4), ...cellsIn('eu', 4)]);
const X = 'us-0';

let director: Director;
beforeEach(() => {
  director = eight();
});

describe('streaks', () => {
  test('1 dead at 45 s of failures, not at 44.9 s, and no longer when the last is more than 5 s ago', () => {
    director.run(44_900, only(X));
    expect(director.said(X)).toBe('not-dead');
    director.clock.advance(100);
    const counts = { feedCells: 8, failing: 1, regionFeedCells: 4, regionFailing: 1 };
    expect(director.of(X)).toEqual({ verdict: 'dead', streakMs: 45_000, ...counts });
    // the last failure was at 44 s
    director.clock.advance(4_000);
    expect(director.said(X)).toBe('dead');
    director.clock.advance(1);
    expect(director.said(X)).toBe('not-dead');
  });

  test('2 two failures 45 s apart are no streak, and three that stopped are none', () => {
    director.round(only(X));
    director.clock.advance(45_000);
    director.round(only(X));
    expect(director.said(X)).toBe('not-dead');
    director = eight();
    director.run(2_000, only(X));
    director.clock.advance(50_000);
    expect(director.said(X)).toBe('not-dead');
  });

  test('2 failures 5 s apart are a streak, a millisecond more and they are not', () => {
    for (const [gap, expected] of [
      [5_000, 'dead'],
      [5_001, 'not-dead'],
    ] as const) {
      director = eight();
      for (let n = 0; n < 10; n++) {
        director.round((cellId) => (cellId === X ? TIMEOUT : null));
        director.clock.advance(gap);
      }
      director.round(only(X));
      expect(director.said(X)).toBe(expected);
    }
  });

  test('3 a streak starts anew after 30 s without a poll', () => {
    director.run(20_000, only(X));
    director.clock.advance(30_000);
    director.run(10_000, only(X));
    expect(director.said(X)).toBe('not-dead');
    director.run(34_900, only(X));
    expect(director.said(X)).toBe('not-dead');
    director.clock.advance(100);
    expect(director.said(X)).toBe('dead');
  });

  const answers: [string, RefreshOutcome][] = [
    ['200', PAGE],
    ['401', failed('unauthorized')],
    ['404', failed('no_feed')],
    ['500', failed('server_error')],
    ['a malformed 200', failed('malformed')],
  ];
  test.each(answers)('4 one %s in the middle resets', (_, answer) => {
    director.run(30_000, only(X));
    director.round((cellId) => (cellId === X ? answer : PAGE));
    director.run(44_000, only(X));
    expect(director.said(X)).toBe('not-dead');
    director.run(2_000, only(X));
    expect(director.said(X)).toBe('dead');
  });

  test.each(FEED_FAILURES)('14, O23 %s for 60 s', (failure) => {
    const unanswered = ['unreachable', 'timeout', 'gateway'].includes(failure);
    director.run(60_000, (cellId) => (cellId === X ? failed(failure) : PAGE));
    expect(director.said(X)).toBe(unanswered ? 'dead' : 'not-dead');
  });

  test('O23 a cell that refuses the director for 10 min is not dead', () => {
    director.run(
      600_000,
      (cellId) => (cellId === X ? failed('unauthorized') : PAGE),
      () => {
        expect(director.said(X)).toBe('not-dead');
      },
    );
  });

  test('14 tokens that cannot be made for 60 s make nobody dead', () => {
    director.run(60_000, () => failed('unminted'));
    for (const { cell_id } of director.cells) expect(director.said(cell_id)).toBe('not-dead');
  });

  test('14 a token that cannot be made neither extends a streak nor ends it', () => {
    director.run(60_000, (cellId, since) =>
      cellId === X ? (since % 4_000 === 0 ? TIMEOUT : failed('unminted')) : PAGE,
    );
    expect(director.said(X)).toBe('dead');
  });
});

describe('guards', () => {
  const dead60 = (cells: PolledCell[], ...silent: string[]) => {
    director = new Director(cells);
    director.run(60_000, only(...silent));
    return silent.map((cellId) => director.said(cellId));
  };
  /** Each in a region with enough company. */
  const spread = (count: number) =>
    Array.from({ length: count }, (_, n) => ({
      cell_id: `c${n}`,
      region: `r${n % 3}`,
      capacity_units: 900,
      admit_mode: 'reserve' as const,
    }));

  test('5 five feed cells are too few, six are enough', () => {
    expect(dead60(cellsIn('us', 5), X)).toEqual(['sample']);
    expect(dead60(cellsIn('us', 6), X)).toEqual(['dead']);
  });

  test('6 six cells: two in different regions are dead, three are the fleet', () => {
    const six = [...cellsIn('us', 3), ...cellsIn('eu', 3)];
    expect(dead60(six, 'us-0', 'eu-0')).toEqual(['dead', 'dead']);
    expect(dead60(six, 'us-0', 'eu-0', 'us-1')).toEqual(['fleet', 'fleet', 'fleet']);
  });

  test('6 nine cells: three are dead, four are the fleet', () => {
    expect(dead60(spread(9), 'c0', 'c1', 'c2')).toEqual(['dead', 'dead', 'dead']);
    expect(dead60(spread(9), 'c0', 'c1', 'c2', 'c3')).toEqual(['fleet', 'fleet', 'fleet', 'fleet']);
  });

  test.each([
    [6, 'region'],
    [3, 'region'],
    [2, 'dead'],
    [1, 'dead'],
  ])('7 28 in the US and 6 in Asia: %i of Asia failing', (count, expected) => {
    const silent = ids('asia', 6).slice(0, count);
    expect(dead60([...cellsIn('us', 28), ...cellsIn('asia', 6)], ...silent)).toEqual(silent.map(() => expected));
  });

  test('8 a staggered partition of a region: nobody is dead at any instant, also while it ends', () => {
    director = new Director([...cellsIn('us', 28), ...cellsIn('asia', 6)]);
    const asia = ids('asia', 6);
    const never = () => {
      for (const cellId of asia) expect(director.said(cellId)).not.toBe('dead');
    };
    const start = (cellId: string) => (asia.indexOf(cellId) * 2_000) / 5;
    director.run(90_000, (cellId, since) => (asia.includes(cellId) && since >= start(cellId) ? TIMEOUT : PAGE), never);
    // they come back one every 3 s
    const back = (cellId: string) => asia.indexOf(cellId) * 3_000;
    director.run(40_000, (cellId, since) => (asia.includes(cellId) && since < back(cellId) ? TIMEOUT : PAGE), never);
  });

  test('8 a cell that stays silent after a partition is dead 45 s after its end, one that was silent long before at once', () => {
    director = new Director([...cellsIn('us', 28), ...cellsIn('asia', 6)]);
    const [old, later, ...others] = ids('asia', 6) as [string, string, ...string[]];
    director.run(20_000, only(old));
    director.run(60_000, only(old, later, ...others));
    expect([director.said(old), director.said(later)]).toEqual(['region', 'region']);
    director.run(2_000, only(old, later));
    expect([director.said(old), director.said(later)]).toEqual(['dead', 'not-dead']);
    director.run(41_000, only(old, later));
    expect(director.said(later)).toBe('not-dead');
    director.run(5_000, only(old, later));
    expect(director.said(later)).toBe('dead');
  });

  test('8 a disruption of a region that grows into one of the fleet, and shrinks again, is one', () => {
    director = new Director([...cellsIn('us', 3), ...cellsIn('asia', 3)]);
    director.run(50_000, only('us-0', 'us-1'));
    expect(director.said('us-0')).toBe('region');
    for (const [silent, reason] of [
      [['us-0', 'us-1', 'asia-0'], 'fleet'],
      [['us-0', 'us-1'], 'region'],
    ] as const) {
      director.run(15_000, only(...silent), (since) => {
        if (since >= 6_000) expect(director.said('us-0')).toBe(reason);
        else expect(['region', 'fleet']).toContain(director.said('us-0'));
      });
    }
    director.run(44_000, only('us-0'), () => expect(director.said('us-0')).not.toBe('dead'));
    director.run(7_000, only('us-0'));
    expect(director.said('us-0')).toBe('dead');
  });

  test('26 while its region is silent with it, a cell is in a disruption at once; alone, or in a small fleet, it is in none', () => {
    director = new Director([...cellsIn('us', 3), ...cellsIn('asia', 3)]);
    director.run(2_000, only('us-0', 'us-1'));
    expect(['us-0', 'us-1', 'us-2', 'asia-0'].map((id) => director.verdicts.disruption(id))).toEqual([
      'region',
      'region',
      null,
      null,
    ]);
    director.run(3_000, only('us-0', 'us-1', 'asia-0'));
    expect(director.verdicts.disruption('asia-0')).toBe('fleet');
    for (const cells of [cellsIn('us', 6), cellsIn('us', 5)]) {
      director = new Director(cells);
      director.run(60_000, only(X));
      expect(director.verdicts.disruption(X)).toBeNull();
    }
  });

  test('9 a withheld verdict is said at once and each minute, each cell by itself, sample too', () => {
    director = new Director(cellsIn('us', 5));
    director.run(60_000, only('us-0', 'us-1'));
    director.lines = [];
    const saidAt: [unknown, number][] = [];
    director.run(130_000, only('us-0', 'us-1'), (since) => {
      const before = director.lines.length;
      director.of('us-0');
      if (since >= 30_000) director.of('us-1');
      for (const { cellId } of director.lines.slice(before)) saidAt.push([cellId, since]);
    });
    expect(saidAt).toEqual([
      ['us-0', 0],
      ['us-1', 30_000],
      ['us-0', 60_000],
      ['us-1', 90_000],
      ['us-0', 120_000],
    ]);
    const event = 'orca_relay_dead_cell_verdict_withheld';
    expect(director.lines[0]).toMatchObject({ event, cellId: 'us-0', reason: 'sample', feedCells: 5, failing: 2 });
  });

  test('10 cells without a feed neither fill the sample nor dilute the ratios', () => {
    const legacy = ids('us', 40).slice(3);
    director = new Director([]);
    director.cells = [...cellsIn('us', 40), ...cellsIn('eu', 2)];
    const ways: Ways = (cellId, since) => {
      if (legacy.includes(cellId)) return failed('no_feed');
      return cellId === X && since > 0 ? TIMEOUT : PAGE;
    };
    director.run(60_000, ways);
    expect(director.of(X)).toMatchObject({ verdict: 'withheld', reason: 'sample', feedCells: 5 });
  });

  test('10 nor do cells without capacity', () => {
    const empty = cellsIn('us', 40)
      .slice(3)
      .map((cell) => ({ ...cell, capacity_units: 0 }));
    expect(dead60([...cellsIn('us', 3), ...empty, ...cellsIn('eu', 2)], X)).toEqual(['sample']);
    expect(dead60([{ ...cellsIn('us', 1)[0], capacity_units: 0 } as PolledCell, ...cellsIn('eu', 9)], X)).toEqual([
      'sample',
    ]);
  });

  test('11 a peer that never served a page counts nowhere', () => {
    director = new Director([]);
    director.cells = [...cellsIn('us', 12)];
    const mute = ids('us', 12).slice(6);
    director.run(60_000, only(X, ...mute));
    const counts = { feedCells: 6, failing: 1, regionFeedCells: 6, regionFailing: 1 };
    expect(director.of(X)).toEqual({ verdict: 'dead', streakMs: 60_000, ...counts });
  });

  test('12 a director that starts while a cell is dead already decides after 45 s', () => {
    director = new Director([]);
    director.cells = [...cellsIn('us', 6), ...cellsIn('eu', 6)];
    director.run(44_900, only(X));
    expect(director.said(X)).toBe('not-dead');
    director.clock.advance(100);
    expect(director.said(X)).toBe('dead');
  });

  test('12 a partition of its region that began before the director did is withheld', () => {
    director = new Director([]);
    director.cells = [...cellsIn('us', 28), ...cellsIn('asia', 6)];
    director.run(60_000, only(...ids('asia', 6)));
    expect(director.said('asia-0')).toBe('region');
  });

  test('15 the counts are of the cells that the last round polled', () => {
    director = new Director(cellsIn('us', 3));
    director.run(60_000, only('us-0', 'us-1'));
    director.cells = cellsIn('us', 6);
    for (const cellId of ['us-3', 'us-4', 'us-5']) director.verdicts.polled(cellId, PAGE);
    expect(director.of('us-0')).toMatchObject({ verdict: 'withheld', reason: 'sample', feedCells: 3, failing: 2 });
    // a cell that is polled no more is not judged
    director.cells = cellsIn('us', 9).slice(1);
    director.round(() => PAGE);
    expect(director.said('us-0')).toBe('sample');
  });

  test('17 of two directors only the one whose polls fail decides', () => {
    const other = eight();
    director.run(60_000, only(X));
    other.run(60_000, only());
    expect([director.said(X), other.said(X)]).toEqual(['dead', 'not-dead']);
  });
});

describe('own lateness', () => {
  test('failures of a director whose rounds come late extend no streak', () => {
    for (let n = 0; n < 30; n++) {
      director.round(only(X), 0, n === 0 ? 0 : 1_001);
      director.clock.advance(2_001);
    }
    expect(director.said(X)).toBe('not-dead');
    director.run(44_900, only(X));
    expect(director.said(X)).toBe('not-dead');
    director.clock.advance(100);
    expect(director.said(X)).toBe('dead');
  });

  test('23 a director that was stopped for 2 min finds nobody dead, who was nearly so before or fell silent meanwhile', () => {
    director.run(44_000, only(X));
    director.clock.sleep(120_000);
    const silent = only(X, 'eu-0');
    director.round(silent, 0, 119_000);
    director.run(44_900, silent, () => {
      for (const cellId of [X, 'eu-0']) expect(director.said(cellId)).toBe('not-dead');
    });
    director.run(2_000, silent);
    expect([director.said(X), director.said('eu-0')]).toEqual(['dead', 'dead']);
  });

  test('an answer counts, however late the director is', () => {
    director.run(60_000, only(X));
    director.round(() => PAGE, 0, 9_000);
    expect(director.said(X)).toBe('not-dead');
  });
});

test('whatever the polls say, nobody is dead while a third of the fleet or half of its region fails', () => {
  const cells = [...cellsIn('us', 4), ...cellsIn('eu', 4)];
  const phase = fc.record({
    silent: fc.subarray(cells.map(({ cell_id }) => cell_id)),
    seconds: fc.integer({ min: 1, max: 60 }),
    late: fc.constantFrom(0, 0, 0, 1_500),
  });
  fc.assert(
    fc.property(fc.array(phase, { minLength: 1, maxLength: 6 }), (phases) => {
      const one = new Director(cells);
      for (const { silent, seconds, late } of phases) {
        for (let n = 0; n < seconds; n++) {
          one.round(only(...silent), 0, late);
          const dead = cells.filter(({ cell_id }) => one.said(cell_id) === 'dead');
          for (const { cell_id, region } of dead) {
            expect(silent).toContain(cell_id);
            const failing = cells.filter((cell) => silent.includes(cell.cell_id));
            if (late > 0) continue;
            expect(failing.length * 3).toBeLessThanOrEqual(cells.length);
            expect(failing.filter((cell) => cell.region === region).length * 2).toBeLessThan(4);
          }
          one.clock.advance(1_000);
        }
      }
    }),
    { numRuns: 60 },
  );
});

describe('when a silent cell can be judged', () => {
  test('three failures on, the wait is what is left of 45 s and one poll; then there is nothing to wait for', () => {
    const waits: (number | null)[] = [];
    director.run(50_000, only(X), () => waits.push(director.verdicts.judgedInMs(X)));
    expect(waits.slice(0, 4)).toEqual([null, null, 44_000, 43_000]);
    expect(waits.slice(44, 46)).toEqual([2_000, null]);
    expect(director.verdicts.judgedInMs('us-1')).toBeNull();
  });

  test('nobody waits for a verdict that a guard would withhold', () => {
    director.run(20_000, only(...ids('us', 3)));
    expect(director.verdicts.judgedInMs(X)).toBeNull();
  });
});
