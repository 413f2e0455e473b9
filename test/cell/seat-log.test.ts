import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { LIMITS } from '../../contract/index.ts';
import type { ControlState } from '../../server/cell/control-states.ts';
import { SeatLog } from '../../server/cell/seat-log.ts';
import { HandClock } from '../support/hand-clock.ts';
import { FeedReader } from './support/feed-reader.ts';

interface Session {
  host: { userId: string; relayHostId: string };
  epoch: number;
  generation: number;
  state: ControlState;
}

let clock: HandClock;
let log: SeatLog;

function session(name: string, epoch = 1, generation = 1, state: ControlState = 'active'): Session {
  return { host: { userId: 'user-1', relayHostId: name.padStart(16, '0') }, epoch, generation, state };
}

function changesFrom(seq: number) {
  const page = log.page({ incarnation: 'i1', seq });
  if (!('changes' in page)) throw new Error('a full snapshot came instead');
  return page.changes.map(({ kind, generation, closeCode, state, reservedBy }) => ({
    kind,
    generation,
    ...(closeCode === undefined ? {} : { closeCode }),
    ...(state === undefined ? {} : { state }),
    ...(reservedBy === undefined ? {} : { reservedBy }),
  }));
}

beforeEach(() => {
  clock = new HandClock(1_800_000_000_000);
  log = new SeatLog(clock, 'i1');
});

describe('the log of seats (85)', () => {
  it('numbers changes from 1 and tells join, drain-only, active, reserve and leave', () => {
    const host = session('a', 7, 1);
    log.joined(host, { reservedBy: 'd1' });
    clock.advance(5);
    host.state = 'drain-only';
    log.stateChanged(host);
    log.stateChanged(host);
    host.state = 'active';
    log.stateChanged(host);
    log.reserved(host.host, 9, 'd2');
    host.state = 'closed';
    log.stateChanged(host);
    log.left(host, 4503);
    expect(changesFrom(0)).toEqual([
      { kind: 'join', generation: 1, state: 'active', reservedBy: 'd1' },
      { kind: 'drain-only', generation: 1 },
      { kind: 'active', generation: 1 },
      { kind: 'reserve', generation: 0, reservedBy: 'd2' },
      { kind: 'leave', generation: 1, closeCode: 4503 },
    ]);
    expect(log.page({ incarnation: 'i1', seq: 3 })).toMatchObject({
      seq: 5,
      more: false,
      changes: [{ seq: 4, epoch: 9 }, { seq: 5 }],
    });
  });

  it('an orphan counts as active: it may come back to all it had', () => {
    const host = session('a');
    log.joined(host);
    host.state = 'drain-only';
    log.stateChanged(host);
    host.state = 'orphaned';
    log.stateChanged(host);
    expect(changesFrom(1).map(({ kind }) => kind)).toEqual(['drain-only', 'active']);
  });

  it('a rebind is a join only, at the time of the new socket', () => {
    const host = session('a');
    log.joined(host);
    const first = log.joinedAt(host);
    clock.advance(1_000);
    log.joined(host);
    expect(changesFrom(0).map(({ kind }) => kind)).toEqual(['join', 'join']);
    expect(log.seats).toBe(1);
    expect(log.joinedAt(host)).toBe((first ?? 0) + 1_000);
  });

  it("a superseded generation's leave, late or in another order, unseats nobody", () => {
    const old = session('a', 3, 1);
    const next = session('a', 4, 2);
    log.joined(old);
    log.joined(next);
    log.left(old, 4408);
    old.state = 'drain-only';
    log.stateChanged(old);
    expect(log.seats).toBe(1);
    expect(log.leaver(old.host)).toBeUndefined();
    expect(changesFrom(0).map(({ kind }) => kind)).toEqual(['join', 'join']);
  });

  it('a host whose generations start anew leaves before it joins, so that readers take the join', () => {
    log.joined(session('a', 1, 9));
    const anew = session('a', 1, 1);
    log.joined(anew);
    const reader = new FeedReader();
    reader.cursor = { incarnation: 'i1', seq: 0 };
    reader.apply('i1', log.page(reader.cursor));
    expect([...reader.seats.values()]).toEqual([expect.objectContaining({ generation: 1 })]);
  });

  it('a booking seats nobody', () => {
    log.reserved(session('a').host, 9, 'd1');
    expect(log.seats).toBe(0);
    expect(log.page(null)).toEqual({ seq: 1, full: [], recentlyLeft: [] });
  });

  it('knows how a host left, for exactly ten minutes, unless it is back', () => {
    const host = session('a', 5);
    log.joined(host);
    clock.advance(10);
    log.left(host, 1006);
    const at = 1_800_000_000_010;
    expect(log.leaver(host.host)).toMatchObject({ epoch: 5, closeCode: 1006, at });
    clock.advance(LIMITS.rejoinMs);
    expect(log.leaver(host.host)).toBeDefined();
    expect(log.page(null)).toMatchObject({ recentlyLeft: [{ userId: 'user-1', epoch: 5, closeCode: 1006, at }] });
    clock.advance(1);
    expect(log.leaver(host.host)).toBeUndefined();
    expect(log.page(null)).toMatchObject({ recentlyLeft: [] });
    const back = session('b');
    log.joined(back);
    log.left(back, 1000);
    log.joined(session('b', 1, 2));
    expect(log.leaver(back.host)).toBeUndefined();
  });

  it('keeps no more leavers than its bound, and sends the newest', () => {
    const count = LIMITS.feedLeaversKept + 1;
    for (let n = 0; n < count; n += 1) {
      const host = session(`h${n}`);
      log.joined(host);
      log.left(host, 1006);
    }
    expect(log.leaver(session('h0').host)).toBeUndefined();
    expect(log.leaver(session('h1').host)).toBeDefined();
    const page = log.page(null);
    if (!('full' in page)) throw new Error('no snapshot');
    expect(page.recentlyLeft).toHaveLength(LIMITS.feedLeaversSent);
    expect(page.recentlyLeft.at(-1)?.relayHostId).toBe(session(`h${count - 1}`).host.relayHostId);
  });
});

describe('pages (85)', () => {
  it('2 005 changes are two pages', () => {
    for (let n = 0; n < 2_005; n += 1) log.joined(session(`h${n}`));
    const first = log.page({ incarnation: 'i1', seq: 0 });
    expect(first).toMatchObject({ seq: 2_000, more: true });
    const second = log.page({ incarnation: 'i1', seq: first.seq });
    expect(second).toMatchObject({ seq: 2_005, more: false });
    expect('changes' in second && second.changes.map(({ seq }) => seq)).toEqual([2_001, 2_002, 2_003, 2_004, 2_005]);
  });

  it('everything comes without a cursor, for another incarnation, and for a cursor ahead of the head', () => {
    log.joined(session('a'));
    expect(log.page(null)).toMatchObject({ seq: 1, full: [{ epoch: 1 }] });
    expect(log.page({ incarnation: 'i2', seq: 1 })).toHaveProperty('full');
    expect(log.page({ incarnation: 'i1', seq: 2 })).toHaveProperty('full');
    expect(log.page({ incarnation: 'i1', seq: 1 })).toEqual({ seq: 1, changes: [], more: false });
  });

  it('everything comes once the ring no longer holds the next change, and not before', () => {
    const host = session('a');
    const over = 3;
    for (let n = 0; n < LIMITS.seatRingChanges + over; n += 1) log.joined(host);
    expect(log.page({ incarnation: 'i1', seq: over - 1 })).toHaveProperty('full');
    const oldest = log.page({ incarnation: 'i1', seq: over });
    expect('changes' in oldest && oldest.changes[0]?.seq).toBe(over + 1);
  });
});

describe('any history, read by the rules (85)', () => {
  type Deed = (typeof kinds)[number] | 'churn';
  type Read = 'poll' | 'lose-poll' | 'wait';

  const kinds = ['join', 'rebind', 'supersede', 'drain', 'refresh', 'orphan', 'end', 'late-leave', 'reserve'] as const;
  const host = fc.nat(4);
  const steps = fc.array(
    fc.oneof(
      { weight: 8, arbitrary: fc.record({ do: fc.constantFrom<Deed[]>(...kinds), host }) },
      { weight: 1, arbitrary: fc.record({ do: fc.constant<Deed>('churn'), host }) },
      { weight: 3, arbitrary: fc.record({ do: fc.constantFrom<Read[]>('poll', 'lose-poll', 'wait') }) },
    ),
    { maxLength: 60 },
  );

  /** The cell: who is seated by its own account, kept apart from the log. */
  class Cell {
    readonly seated = new Map<number, Session>();
    readonly superseded: Session[] = [];
    #generation = 0;

    run(step: { do: Deed; host: number }): void {
      const now = this.seated.get(step.host);
      if (step.do === 'reserve') log.reserved(session(`h${step.host}`).host, 50, 'd1');
      else if (step.do === 'late-leave') for (const old of this.superseded.splice(0)) log.left(old, 4408);
      else if (step.do === 'join' && now === undefined) this.#seat(step.host);
      else if (now === undefined) return;
      else if (step.do === 'supersede') {
        this.superseded.push(now);
        this.#seat(step.host);
      } else if (step.do === 'end') {
        this.seated.delete(step.host);
        log.left(now, 4409);
      } else if (step.do === 'rebind') {
        now.state = 'active';
        log.joined(now);
      } else if (step.do === 'churn') for (let n = 0; n < 2_500; n += 1) log.joined(now);
      else this.#turn(now, step.do === 'drain' ? 'drain-only' : step.do === 'orphan' ? 'orphaned' : 'active');
    }

    #seat(host: number): void {
      this.#generation += 1;
      const seated = session(`h${host}`, 10 + this.#generation, this.#generation);
      this.seated.set(host, seated);
      log.joined(seated);
    }

    #turn(now: Session, state: ControlState): void {
      now.state = state;
      log.stateChanged(now);
    }
  }

  it('a reader that loses polls and stops between pages ends with exactly the seats', () => {
    fc.assert(
      fc.property(steps, fc.array(fc.nat(3)), (history, cuts) => {
        clock = new HandClock(1_800_000_000_000);
        log = new SeatLog(clock, 'i1');
        const cell = new Cell();
        const reader = new FeedReader();
        const poll = (pages: number) => {
          for (let n = 0; n < pages; n += 1) reader.apply('i1', log.page(reader.cursor));
        };
        for (const step of history) {
          if ('host' in step) cell.run(step);
          else if (step.do === 'wait') clock.advance(90_000);
          else if (step.do === 'poll') poll(cuts.pop() ?? 1);
          // The reply is lost: the reader stays where it is.
          else log.page(reader.cursor);
        }
        poll(1 + Math.ceil(log.page(null).seq / LIMITS.feedPageChanges));
        const want = [...cell.seated.values()].map(({ host, epoch, generation, state }) => [
          `${host.userId} ${host.relayHostId}`,
          epoch,
          generation,
          state === 'drain-only' ? 'drain-only' : 'active',
        ]);
        const held = [...reader.seats].map(([name, { epoch, generation, state }]) => [name, epoch, generation, state]);
        expect(held.sort()).toEqual(want.sort());
        for (const seated of cell.seated.values()) {
          const held = reader.seats.get(`${seated.host.userId} ${seated.host.relayHostId}`);
          expect(held?.joinedAt).toBe(log.joinedAt(seated));
        }
        expect(log.seats).toBe(reader.seats.size);
      }),
      { numRuns: 300 },
    );
  });
});
