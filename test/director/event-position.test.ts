import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { advance, catchUp, covers, readEventId, writeEventId } from '../../server/director/event-position.ts';
import type { Change, ChangeCursor } from '../../server/sql-interface.ts';

const change = (id: number): Change => ({
  id,
  kind: 'placed',
  from_cell: null,
  to_cell: 'X',
  user_id: null,
  relay_host_id: null,
  epoch: null,
  rule: null,
  detail: null,
  at: 0,
});

describe('the id of an event', () => {
  test('holds the cursor', () => {
    const cursor = { timeline: 3, max_id: 120, gaps: [119, 100] };
    expect(writeEventId(cursor)).toBe('3-120.1.20');
    expect(readEventId('3-120.1.20')).toEqual({ cursor, exact: true });
    expect(readEventId('3-120')).toEqual({ cursor: { ...cursor, gaps: [] }, exact: true });
  });

  test('of more gaps than it holds says so', () => {
    const id = writeEventId({
      timeline: 1,
      max_id: 1_000,
      gaps: Array.from({ length: 65 }, (_, index) => 900 + index),
    });
    const read = readEventId(id);
    expect(read?.exact).toBe(false);
    expect(read?.cursor.gaps).toHaveLength(64);
    expect(read?.cursor.gaps).not.toContain(900);
    expect(id.length).toBeLessThan(512);
  });

  test.each(['', '7', '1-', '1-2.', '1-2.x', '-1-2', '1-2!!', `1-2${'.1'.repeat(65)}`, '1-9999999999999999'])(
    '%j is none',
    (text) => {
      expect(readEventId(text)).toBeNull();
    },
  );

  test('a gap that it cannot have is left out', () => {
    expect(readEventId('1-5.0.3.5.9')?.cursor.gaps).toEqual([2]);
  });
});

describe('a cursor', () => {
  test('that moves on leaves gaps, and late changes fill them', () => {
    const jumped = advance({ timeline: 1, max_id: 5, gaps: [3] }, 8);
    expect(jumped).toEqual({ timeline: 1, max_id: 8, gaps: [3, 6, 7] });
    expect(advance(jumped, 6)).toEqual({ timeline: 1, max_id: 8, gaps: [3, 7] });
    expect([3, 6, 8, 9].map((id) => covers(jumped, id))).toEqual([false, false, true, false]);
  });
});

/** Postgres: ids are given out in order, and become visible in any. */
class Log {
  readonly visible = new Set<number>();
  #next = 0;
  readonly open: number[] = [];

  begin(): void {
    this.#next += 1;
    this.open.push(this.#next);
  }
  end(which: number, commits: boolean): void {
    const [id] = this.open.splice(which % Math.max(1, this.open.length), 1);
    if (id !== undefined && commits) this.visible.add(id);
  }
  maySurface(id: number): boolean {
    return this.open.includes(id) || this.visible.has(id);
  }
  /** As `changes_since` answers. */
  page({ timeline, max_id, gaps }: ChangeCursor, rows: number) {
    const head = Math.max(max_id, ...this.visible);
    const upto = Math.min(head, max_id + rows);
    const seen = [...this.visible].filter((id) => (id > max_id && id <= upto) || gaps.includes(id));
    const asked = [...gaps, ...Array.from({ length: upto - max_id }, (_, index) => max_id + 1 + index)];
    return {
      cursor: { timeline, max_id: upto, gaps: asked.filter((id) => !this.visible.has(id)) },
      changes: seen.toSorted((a, b) => a - b).map(change),
      more: upto < head,
    };
  }
}

test('a reader that comes back gets every change once, however its reads and the stream interleave', () => {
  const step = fc.oneof(
    fc.constant({ do: 'begin' as const }),
    fc.record({ do: fc.constant('end' as const), which: fc.nat(5), commits: fc.boolean() }),
    fc.constant({ do: 'stream' as const }),
    fc.constant({ do: 'age' as const }),
    fc.constant({ do: 'cut' as const }),
    fc.record({ do: fc.constant('ask' as const), rows: fc.integer({ min: 1, max: 6 }) }),
    fc.constant({ do: 'take' as const }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const log = new Log();
      const start = { timeline: 1, max_id: 0, gaps: [] };
      let stream: ChangeCursor = start;
      let reader: { cursor: ChangeCursor; live: boolean } = { cursor: start, live: true };
      let asked: { page: ReturnType<Log['page']>; before: ChangeCursor } | null = null;
      const got: number[] = [];
      const read = () => {
        const page = log.page(stream, 100);
        stream = page.cursor;
        if (!reader.live) return;
        for (const { id } of page.changes) {
          got.push(id);
          reader.cursor = advance(reader.cursor, id);
        }
        reader.cursor = stream;
      };
      const ask = (rows: number) => {
        if (!reader.live) asked = { before: stream, page: log.page(reader.cursor, rows) };
      };
      const take = () => {
        if (asked === null) return;
        const { told, cursor, live } = catchUp(asked.page, asked.before, stream);
        got.push(...told.map(({ id }) => id));
        if (live) expect(cursor.gaps.toSorted()).toEqual(stream.gaps.filter((gap) => gap <= cursor.max_id).toSorted());
        reader = { cursor, live };
        asked = null;
      };
      for (const one of steps) {
        if (one.do === 'begin') log.begin();
        if (one.do === 'end') log.end(one.which, one.commits);
        if (one.do === 'stream') read();
        // as `ageGaps`: what was rolled back is given up, and nothing else can be that old
        if (one.do === 'age') stream = { ...stream, gaps: stream.gaps.filter((gap) => log.maySurface(gap)) };
        if (one.do === 'cut') {
          asked = null;
          const position = readEventId(writeEventId(reader.cursor));
          reader = { cursor: position?.cursor ?? start, live: false };
        }
        if (one.do === 'ask' && asked === null) ask(one.rows);
        if (one.do === 'take') take();
      }
      while (log.open.length > 0) log.end(0, true);
      take();
      for (let round = 0; round < 100; round += 1) {
        read();
        ask(4);
        take();
      }
      expect(reader.live).toBe(true);
      expect(got.toSorted((a, b) => a - b)).toEqual([...log.visible].toSorted((a, b) => a - b));
    }),
    { numRuns: 500 },
  );
});
