import fc from 'fast-check';
import { beforeEach, describe, expect, test } from 'vitest';
import { HostPacing } from '../../server/director/host-pacing.ts';
import { type Entry, Lane, type LaneOptions, type Pass, Permits } from '../../server/director/lanes.ts';
import { HandClock } from '../support/hand-clock.ts';

let clock: HandClock;
beforeEach(() => {
  clock = new HandClock();
});

const lane = (options: Partial<LaneOptions> = {}, permits = new Permits(options.concurrency ?? 1)) =>
  new Lane(
    { name: 'sticky', concurrency: 1, queueMax: 4_096, waitMs: 4_000, minRetryMs: 2_000, ...options },
    permits,
    clock,
  );

const admitted = (entry: Entry | Promise<Entry>): Pass => {
  if (entry instanceof Promise || !entry.ok) throw new Error('not admitted at once');
  return entry;
};

/** Serves `count` asks of `ms` each, so that the lane knows its rate. */
function serve(target: Lane, count: number, ms: number): void {
  for (let i = 0; i < count; i += 1) {
    const pass = admitted(target.enter(null));
    clock.advance(ms);
    pass.leave();
  }
}

describe('a lane', () => {
  test('serves in the order of arrival, as many at once as it has places', async () => {
    const one = lane({ concurrency: 2 });
    const first = admitted(one.enter('a'));
    admitted(one.enter('b'));
    const order: string[] = [];
    const waiting = ['c', 'd', 'e'].map(async (host) => {
      const entry = await one.enter(host);
      order.push(host);
      if (entry.ok) entry.leave();
    });
    expect(one.waiting).toBe(3);
    first.leave();
    await Promise.all(waiting);
    expect(order).toEqual(['c', 'd', 'e']);
    expect(one.running).toBe(1);
  });

  test('frees a place once, however often it is left', () => {
    const one = lane();
    const pass = admitted(one.enter(null));
    pass.leave();
    pass.leave();
    admitted(one.enter(null));
    expect(one.running).toBe(1);
    expect(one.enter(null)).toBeInstanceOf(Promise);
  });

  test('lets nobody wait longer than waitMs', async () => {
    const one = lane();
    admitted(one.enter(null));
    const waiting = one.enter('a');
    clock.advance(3_999);
    expect(one.waiting).toBe(1);
    clock.advance(1);
    expect(await waiting).toMatchObject({ ok: false, reason: 'wait-timeout' });
    expect(clock.armed).toBe(0);
  });

  test('drops who has hung up, before and while waiting', async () => {
    const one = lane();
    admitted(one.enter(null));
    expect(await one.enter('a', AbortSignal.abort())).toMatchObject({ ok: false, reason: 'abandoned' });
    const hangUp = new AbortController();
    const waiting = one.enter('a', hangUp.signal);
    hangUp.abort();
    expect(await waiting).toMatchObject({ ok: false, reason: 'abandoned' });
    expect(one.waiting).toBe(0);
  });

  test('turns away whom a more urgent ask supersedes, and nobody else', async () => {
    const one = lane();
    const pass = admitted(one.enter(null));
    const [superseded, other] = [one.enter('a'), one.enter('b')];
    one.supersede('a');
    expect(await superseded).toMatchObject({ ok: false, reason: 'superseded' });
    pass.leave();
    expect(await other).toMatchObject({ ok: true });
  });

  test('keeps a queue worth waitMs at the measured rate, never above queueMax', () => {
    const slow = lane();
    serve(slow, 100, 100);
    expect(slow.queueBound).toBeGreaterThanOrEqual(39);
    expect(slow.queueBound).toBeLessThanOrEqual(41);
    const fast = lane();
    serve(fast, 100, 0.1);
    expect(fast.queueBound).toBe(4_096);
    const stuck = lane({ concurrency: 2 });
    serve(stuck, 100, 60_000);
    expect(stuck.queueBound).toBe(2);
  });

  test('is full beyond that', async () => {
    const one = lane({ queueMax: 2 });
    admitted(one.enter(null));
    const waiting = [one.enter('a'), one.enter('b')];
    expect(one.enter('c')).toMatchObject({ ok: false, reason: 'queue-full' });
    one.stop();
    expect((await Promise.all(waiting)).map((entry) => !entry.ok && entry.reason)).toEqual(['stopping', 'stopping']);
    expect(one.enter('d')).toMatchObject({ ok: false, reason: 'stopping' });
  });

  test('spreads a wave that it turns away over the time it needs for it (P10)', () => {
    const one = lane({ queueMax: 0, minRetryMs: 2_000 });
    serve(one, 100, 10);
    admitted(one.enter(null));
    const told = Array.from({ length: 3_000 }, () => {
      const entry = one.enter(null) as Extract<Entry, { ok: false }>;
      return entry.retryAfterMs;
    });
    const perSecond = new Map<number, number>();
    for (const ms of told) {
      const second = Math.ceil(ms / 1_000);
      perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
    }
    // 10 ms each: a hundred a second.
    expect(Math.max(...perSecond.values())).toBeLessThanOrEqual(102);
    expect(Math.min(...told)).toBeGreaterThanOrEqual(2_000);
    expect(Math.max(...told)).toBeLessThan(33_000);
  });

  test('does not take an outage for the rate: nobody is sent away for longer because calls failed slowly', () => {
    const one = lane({ queueMax: 0 });
    serve(one, 100, 2);
    for (let i = 0; i < 200; i += 1) {
      const pass = admitted(one.enter(null));
      clock.advance(3_000);
      pass.leave(false);
      expect(one.promise()).toBeLessThan(2_100);
    }
  });

  test('promises nothing beyond 5 min', () => {
    const one = lane({ queueMax: 0 });
    serve(one, 100, 15_000);
    admitted(one.enter(null));
    for (let i = 0; i < 100; i += 1) {
      expect((one.enter(null) as Extract<Entry, { ok: false }>).retryAfterMs).toBeLessThanOrEqual(300_000);
    }
  });
});

describe('lanes that share permits', () => {
  test('phones go before placements, and leave them a place', async () => {
    const permits = new Permits(2);
    const resolve = lane({ name: 'resolve', concurrency: 1 }, permits);
    const placement = lane({ name: 'placement', concurrency: 2 }, permits);
    const [a, b] = [admitted(placement.enter('a')), admitted(placement.enter('b'))];
    const order: string[] = [];
    const note = (name: string, entry: Entry | Promise<Entry>) =>
      Promise.resolve(entry).then((result) => {
        order.push(name);
        return result;
      });
    const queued = [
      note('host', placement.enter('c')),
      note('phone 1', resolve.enter(null)),
      note('phone 2', resolve.enter(null)),
    ];
    a.leave();
    await queued[1];
    expect(order).toEqual(['phone 1']);
    // The second phone may not take the other permit too.
    b.leave();
    await queued[0];
    expect(order).toEqual(['phone 1', 'host']);
    const first = await queued[1];
    if (first?.ok) first.leave();
    await queued[2];
    expect(order).toEqual(['phone 1', 'host', 'phone 2']);
  });
});

describe('whatever happens in whatever order', () => {
  type Step =
    | { kind: 'enter'; lane: 0 | 1; host: number; abortable: boolean }
    | { kind: 'leave'; index: number }
    | { kind: 'abort'; index: number }
    | { kind: 'advance'; ms: number }
    | { kind: 'supersede'; host: number };
  const step: fc.Arbitrary<Step> = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant('enter' as const),
        lane: fc.constantFrom(0 as const, 1 as const),
        host: fc.nat(5),
        abortable: fc.boolean(),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.oneof(
        fc.record({ kind: fc.constant('leave' as const), index: fc.nat(20) }),
        fc.record({ kind: fc.constant('abort' as const), index: fc.nat(20) }),
      ),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(3_000) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('supersede' as const), host: fc.nat(5) }) },
  );

  test('no lane exceeds its places or the permits, no queue its bound, and every ask is answered once', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 120 }), fc.integer({ min: 1, max: 3 }), async (steps, total) => {
        clock = new HandClock();
        const permits = new Permits(total);
        const lanes = [
          lane({ name: 'resolve', concurrency: 1, queueMax: 3 }, permits),
          lane({ name: 'placement', concurrency: 2, queueMax: 5 }, permits),
        ] as const;
        const passes: Pass[] = [];
        const hangUps: AbortController[] = [];
        let asked = 0;
        let answered = 0;
        for (const one of steps) {
          if (one.kind === 'enter') {
            const hangUp = new AbortController();
            if (one.abortable) hangUps.push(hangUp);
            asked += 1;
            void Promise.resolve(lanes[one.lane].enter(String(one.host), hangUp.signal)).then((entry) => {
              answered += 1;
              if (entry.ok) passes.push(entry);
              else expect(entry.retryAfterMs).toBeGreaterThan(0);
            });
          } else if (one.kind === 'leave') passes.splice(one.index % (passes.length || 1), 1)[0]?.leave();
          else if (one.kind === 'abort') hangUps[one.index % (hangUps.length || 1)]?.abort();
          else if (one.kind === 'advance') clock.advance(one.ms);
          else lanes[1].supersede(String(one.host));
          await Promise.resolve();
          await Promise.resolve();
          expect(lanes[0].running).toBeLessThanOrEqual(1);
          expect(lanes[0].running + lanes[1].running).toBeLessThanOrEqual(total);
          expect(lanes[0].waiting).toBeLessThanOrEqual(3);
          expect(lanes[1].waiting).toBeLessThanOrEqual(5);
          // Nobody waits while there is a place for him.
          if (lanes[0].running + lanes[1].running < total) {
            for (const each of lanes) expect(each.waiting === 0 || each.running > 0).toBe(true);
          }
        }
        for (const each of lanes) each.stop();
        await new Promise((resolve) => setImmediate(resolve));
        expect(answered).toBe(asked);
        for (const pass of passes) pass.leave();
        expect(lanes[0].running + lanes[1].running).toBe(0);
        expect(clock.armed).toBe(0);
      }),
      { numRuns: 200 },
    );
  });
});

describe('pacing of a host', () => {
  test('one ask at a time; and none again too soon after a grant', () => {
    const pacing = new HostPacing(clock);
    const first = pacing.begin('a');
    expect(pacing.begin('a')).toMatchObject({ ok: false, reason: 'host-in-flight' });
    expect(pacing.begin('b')).toMatchObject({ ok: true });
    clock.advance(300);
    if (first.ok) first.end(5_000);
    expect(pacing.begin('a')).toEqual({ ok: false, reason: 'host-rate-limited', retryAfterMs: 4_700 });
    clock.advance(4_700);
    expect(pacing.begin('a')).toMatchObject({ ok: true });
  });

  test('an ask that was refused may be repeated at once', () => {
    const pacing = new HostPacing(clock);
    const first = pacing.begin('a');
    if (first.ok) first.end();
    expect(pacing.begin('a')).toMatchObject({ ok: true });
  });

  test('remembers 4 096 hosts, the latest', () => {
    const pacing = new HostPacing(clock);
    for (let i = 0; i <= 4_096; i += 1) {
      const entry = pacing.begin(`host ${i}`);
      if (entry.ok) entry.end(5_000);
    }
    expect(pacing.begin('host 0')).toMatchObject({ ok: true });
    expect(pacing.begin('host 1')).toMatchObject({ reason: 'host-rate-limited' });
    expect(pacing.begin('host 4096')).toMatchObject({ reason: 'host-rate-limited' });
  });
});
