import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { BookingItem, BookingResult } from '../../contract/booking.ts';
import { LIMITS } from '../../contract/index.ts';
import { Book, type BookContext, type Booking, type BookingEnd } from '../../server/cell/book.ts';
import { decideBooking } from '../../server/cell/booking-rules.ts';
import { hostKey } from '../../server/cell/seats.ts';
import { bookingCeiling, type Unit, Units } from '../../server/cell/units.ts';
import { HandClock } from '../support/hand-clock.ts';

const CAP = { hardCap: 600, unobservedBound: 60 };
const CEILING = 440;

interface Desk {
  clock: HandClock;
  units: Units;
  book: Book;
  context: BookContext;
  seated: Map<string, number>;
  noted: Booking[];
  ends: BookingEnd[];
  ask(items: Partial<BookingItem>[], dryRun?: boolean): BookingResult[];
  one(item: Partial<BookingItem>, dryRun?: boolean): BookingResult | undefined;
  /** Takes all but so many of the units under the ceiling. */
  leaveFree(count: number): Unit[];
}

const host = (n: number) => ({ userId: 'user-1', relayHostId: String(n).padStart(16, 'h') });

function openDesk(over: Partial<BookContext> = {}): Desk {
  const clock = new HandClock();
  const units = new Units(CAP.hardCap);
  const seated = new Map<string, number>();
  const noted: Booking[] = [];
  const ends: BookingEnd[] = [];
  const context: BookContext = {
    clock,
    units,
    ceiling: bookingCeiling(CAP, 900),
    mode: () => 'reserve',
    draining: () => false,
    intakePerSec: () => 5,
    seatedEpoch: (who) => seated.get(hostKey(who)) ?? 0,
    leftEpoch: () => 0,
    booked: (booking) => noted.push(booking),
    ended: (end) => ends.push(end),
    ...over,
  };
  const book = new Book(context);
  const ask = (items: Partial<BookingItem>[], dryRun?: boolean) =>
    book.take({
      v: 1,
      directorId: 'director-1',
      ...(dryRun === undefined ? {} : { dryRun }),
      items: items.map((item) => ({ ...host(1), epoch: 1, ttlMs: LIMITS.bookingTtlMs, ...item })),
    });
  return {
    clock,
    units,
    book,
    context,
    seated,
    noted,
    ends,
    ask,
    one: (item, dryRun) => ask([item], dryRun)[0],
    leaveFree: (count) => Array.from({ length: CEILING - count - units.enforced }, () => units.control(true) as Unit),
  };
}

describe('87: the decision of the book', () => {
  const view = {
    mode: 'reserve',
    dryRun: false,
    draining: false,
    sticky: false,
    epoch: 7,
    seated: 0,
    booked: 0,
    left: 0,
    unitFree: true,
    intakeFree: true,
  } as const;

  it.each([
    ['outside reserve mode', { mode: 'db', draining: true }, { outcome: 'off', effect: 'nothing' }],
    ['a dry run outside reserve mode', { mode: 'db', dryRun: true }, { outcome: 'ok', effect: 'nothing' }],
    ['draining, whatever is known', { draining: true, seated: 9 }, { outcome: 'draining', effect: 'nothing' }],
    ['seated at the epoch', { seated: 7 }, { outcome: 'seated-newer', epoch: 7, effect: 'nothing' }],
    ['booked at the epoch', { booked: 7 }, { outcome: 'seated-newer', epoch: 7, effect: 'nothing' }],
    ['the newer of both', { seated: 8, booked: 9 }, { outcome: 'seated-newer', epoch: 9, effect: 'nothing' }],
    ['past', { left: 8, seated: 6 }, { outcome: 'seated-newer', epoch: 8, effect: 'nothing' }],
    ['past, and a newer booking', { left: 8, booked: 9 }, { outcome: 'seated-newer', epoch: 9, effect: 'nothing' }],
    ['from where it may belong here', { left: 7 }, { outcome: 'ok', effect: 'book' }],
    ['sticky, past', { sticky: true, left: 8 }, { outcome: 'seated-newer', epoch: 8, effect: 'nothing' }],
    ['newer before full', { seated: 8, unitFree: false }, { outcome: 'seated-newer', epoch: 8, effect: 'nothing' }],
    ['no unit before no token', { unitFree: false, intakeFree: false }, { outcome: 'full', effect: 'nothing' }],
    ['no token', { intakeFree: false }, { outcome: 'intake', effect: 'nothing' }],
    ['a dry run is told the truth', { dryRun: true, intakeFree: false }, { outcome: 'intake', effect: 'nothing' }],
    ['a dry run has no effect', { dryRun: true }, { outcome: 'ok', effect: 'nothing' }],
    ['older ones known', { seated: 5, booked: 6 }, { outcome: 'ok', effect: 'book' }],
    ['sticky, seated', { sticky: true, seated: 7, unitFree: false }, { outcome: 'ok', effect: 'nothing' }],
    ['sticky, booked', { sticky: true, booked: 7, unitFree: false }, { outcome: 'ok', effect: 'extend' }],
    ['sticky, booked, dry', { sticky: true, booked: 7, dryRun: true }, { outcome: 'ok', effect: 'nothing' }],
    ['sticky, newer', { sticky: true, booked: 8 }, { outcome: 'seated-newer', epoch: 8, effect: 'nothing' }],
    ['sticky takes no token', { sticky: true, intakeFree: false }, { outcome: 'ok', effect: 'book' }],
    ['sticky needs a unit', { sticky: true, unitFree: false }, { outcome: 'full', effect: 'nothing' }],
  ] as const)('%s', (_name, over, expected) => {
    expect(decideBooking({ ...view, ...over })).toEqual(expected);
  });
});

describe('87: the book', () => {
  it('promises seats up to its ceiling, phones and controls counted, and no further', () => {
    const { one, leaveFree, units } = openDesk();
    leaveFree(1);
    expect(one(host(1))).toEqual({ outcome: 'ok' });
    expect(units.reserved).toBe(1);
    expect(one(host(2))).toEqual({ outcome: 'full' });
    expect(one({ ...host(2), sticky: true })).toEqual({ outcome: 'full' });
  });

  it('takes on a burst of hosts, then five a second, and sticky ones beside that', () => {
    const { ask, one, clock } = openDesk();
    const answers = ask(Array.from({ length: 25 }, (_, n) => host(n)));
    expect(answers.map(({ outcome }) => outcome)).toEqual([
      ...Array<string>(20).fill('ok'),
      ...Array<string>(5).fill('intake'),
    ]);
    expect(one({ ...host(30), sticky: true })).toEqual({ outcome: 'ok' });
    clock.advance(199);
    expect(one(host(40))).toEqual({ outcome: 'intake' });
    clock.advance(1);
    expect(one(host(40))).toEqual({ outcome: 'ok' });
    expect(one(host(41))).toEqual({ outcome: 'intake' });
    clock.advance(LIMITS.bookingTtlMs * 10);
    expect(ask(Array.from({ length: 21 }, (_, n) => host(100 + n))).at(-1)).toEqual({ outcome: 'intake' });
  });

  it('names the epoch that outranks the one asked for, and lets a demoted seat be outranked', () => {
    const { one, seated } = openDesk();
    seated.set(hostKey(host(1)), 6);
    expect(one({ epoch: 6 })).toEqual({ outcome: 'seated-newer', epoch: 6 });
    expect(one({ epoch: 6, sticky: true })).toEqual({ outcome: 'ok' });
    seated.delete(hostKey(host(1)));
    expect(one({ epoch: 6 })).toEqual({ outcome: 'ok' });
    expect(one({ epoch: 5 })).toEqual({ outcome: 'seated-newer', epoch: 6 });
  });

  it('hands the unit of a lower booking over, so that a full cell can move a host up', () => {
    const { one, leaveFree, units, ends, book } = openDesk();
    leaveFree(1);
    one({ epoch: 6 });
    expect(one({ epoch: 7 })).toEqual({ outcome: 'ok' });
    expect(units.enforced).toBe(CEILING);
    expect(ends).toEqual(['replaced']);
    expect(book.find(host(1), 6)).toBeUndefined();
    expect(book.epochOf(host(1))).toBe(7);
  });

  it('a unit that a socket has taken over is not handed over again', () => {
    const { one, leaveFree, units, book } = openDesk();
    leaveFree(2);
    one({ epoch: 6 });
    const socket = book.lendUnit(host(1));
    socket?.opened();
    expect([units.physical, units.reserved]).toEqual([1, 0]);
    expect(book.lendUnit(host(1))).toBeNull();
    expect(one({ epoch: 7 })).toEqual({ outcome: 'ok' });
    expect(units.enforced).toBe(CEILING);
    expect(one({ ...host(2) })).toEqual({ outcome: 'full' });
    socket?.release();
    expect(units.enforced).toBe(CEILING - 1);
    expect(units.faults).toBe(0);
  });

  it('an upgrade that came to nothing leaves the booking whole; one on its way has the unit', () => {
    const { book, one, units, leaveFree } = openDesk();
    leaveFree(1);
    one({});
    const abandoned = book.lendUnit(host(1));
    expect([units.inFlight - (CEILING - 1), units.reserved]).toEqual([1, 0]);
    expect(book.lendUnit(host(1))).toBeNull();
    expect(one({ epoch: 2 })).toEqual({ outcome: 'full' });
    abandoned?.release();
    expect(units.reserved).toBe(1);
    expect(book.find(host(1), 1)).toBeDefined();
    expect(one({ epoch: 2 })).toEqual({ outcome: 'ok' });
    expect(units.enforced).toBe(CEILING);
  });

  it('a socket keeps its unit when the booking ends under it, and gives it back once', () => {
    const { book, one, units, clock } = openDesk();
    one({});
    const socket = book.lendUnit(host(1));
    clock.advance(LIMITS.bookingTtlMs + 1_000);
    expect(book.size).toBe(0);
    expect(units.enforced).toBe(1);
    socket?.release();
    expect([units.enforced, units.faults]).toEqual([0, 0]);
  });

  it('is good for exactly its epoch and until it expires, also while nobody asks', () => {
    const { book, one, units, clock, noted, ends } = openDesk();
    one({ epoch: 4, ttlMs: 10_000 });
    expect(noted).toMatchObject([{ host: host(1), epoch: 4, reservedBy: 'director-1' }]);
    for (const epoch of [3, 5]) expect(book.find(host(1), epoch)).toBeUndefined();
    expect(book.find({ ...host(1), userId: 'user-2' }, 4)).toBeUndefined();
    clock.advance(9_999);
    expect(book.find(host(1), 4)).toBeDefined();
    clock.advance(1);
    expect(book.find(host(1), 4)).toBeUndefined();
    clock.advance(1_000);
    expect([units.enforced, clock.armed]).toEqual([0, 0]);
    expect(ends).toEqual(['expired']);
  });

  it('a sticky ask again extends it, never shortens it, and is told to nobody', () => {
    const { book, one, clock, noted } = openDesk();
    one({ sticky: true, ttlMs: 20_000 });
    one({ sticky: true, ttlMs: 1 });
    clock.advance(19_000);
    one({ sticky: true, ttlMs: 20_000 });
    clock.advance(19_000);
    expect(book.find(host(1), 1)).toBeDefined();
    expect(noted).toHaveLength(1);
  });

  it('a dry run is answered and changes nothing, in either mode', () => {
    let mode: 'db' | 'reserve' = 'reserve';
    const { book, ask, one, units, noted, clock } = openDesk({ mode: () => mode });
    ask(
      Array.from({ length: 30 }, (_, n) => host(n)),
      true,
    ).forEach((answer) => {
      expect(answer).toEqual({ outcome: 'ok' });
    });
    one({ sticky: true, ttlMs: 5_000 });
    one({ sticky: true, ttlMs: 30_000 }, true);
    clock.advance(5_000);
    expect(book.find(host(1), 1)).toBeUndefined();
    expect(book.intake.tokens).toBe(LIMITS.intakeBurst);
    mode = 'db';
    expect(one({}, true)).toEqual({ outcome: 'ok' });
    expect(one({})).toEqual({ outcome: 'off' });
    expect([book.size, units.enforced, noted.length]).toEqual([0, 0, 1]);
  });

  it('serves one seat: used it is gone, expired while its host proved itself it still counts, replaced it does not', () => {
    const { book, one, clock, ends } = openDesk();
    one({ epoch: 1 });
    const first = book.find(host(1), 1) as Booking;
    expect(book.honours(first)).toBe(true);
    book.seated(host(1), 1, first);
    expect(book.honours(first)).toBe(false);
    expect(book.find(host(1), 1)).toBeUndefined();

    one({ epoch: 2, ttlMs: 1_000 });
    const late = book.find(host(1), 2) as Booking;
    clock.advance(5_000);
    expect(book.honours(late)).toBe(true);
    book.seated(host(1), 2, late);
    expect(book.honours(late)).toBe(false);

    one({ epoch: 3 });
    const replaced = book.find(host(1), 3) as Booking;
    one({ epoch: 4 });
    expect(book.honours(replaced)).toBe(false);
    book.seated(host(1), 3, null);
    expect(book.epochOf(host(1))).toBe(4);
    book.seated(host(1), 5, null);
    expect(book.epochOf(host(1))).toBe(0);
    expect(ends).toEqual(['used', 'expired', 'replaced', 'used']);
  });

  it('voids all it promised, and gives every unit back (88)', () => {
    const { book, ask, units, clock, ends } = openDesk();
    ask([host(1), host(2), host(3)]);
    const held = book.find(host(1), 1) as Booking;
    expect(book.void()).toBe(3);
    expect(book.honours(held)).toBe(false);
    expect([book.size, units.enforced, clock.armed]).toEqual([0, 0, 0]);
    expect(ends).toEqual(['void', 'void', 'void']);
  });

  it('an uncapped cell promises up to its capacity, as far as it has units; a capped one keeps what placement keeps', () => {
    expect(bookingCeiling(null, 300)).toBe(300);
    expect(bookingCeiling(null, 5_000)).toBe(LIMITS.uncappedConnections);
    expect(bookingCeiling(CAP, 5_000)).toBe(CEILING);
  });
});

type Step =
  | { do: 'ask'; host: number; epoch: number; ttlMs: number; sticky: boolean; dryRun: boolean }
  | { do: 'upgrade'; host: number }
  | { do: 'open' | 'close'; socket: number }
  | { do: 'seat'; host: number; epoch: number }
  | { do: 'wait'; ms: number }
  | { do: 'void' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('ask' as const),
      host: fc.nat(40),
      epoch: fc.integer({ min: 1, max: 5 }),
      ttlMs: fc.integer({ min: 1, max: LIMITS.bookingTtlMs }),
      sticky: fc.boolean(),
      dryRun: fc.boolean(),
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('upgrade' as const), host: fc.nat(40) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom('open' as const, 'close' as const), socket: fc.nat(60) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('seat' as const),
      host: fc.nat(40),
      epoch: fc.integer({ min: 1, max: 5 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat(40_000) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('void' as const) }) },
);

/** Twenty units under a cap of 120: few enough that random steps meet every edge. */
function smallDesk(): Desk {
  const units = new Units(120);
  const desk = openDesk({ units, ceiling: 20 });
  return { ...desk, units };
}

describe('87: the book in random steps', () => {
  it('promises no seat over the ceiling, never crosses the hard cap, takes on no more than burst + rate · time, leaks nothing', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const { book, one, units, clock, noted } = smallDesk();
        const sockets: { unit: Unit; opened: boolean }[] = [];
        let takenOn = 0;
        for (const each of steps) {
          if (each.do === 'ask') {
            const before = { noted: noted.length, reserved: units.reserved };
            const { host: n, dryRun, ...item } = each;
            one({ ...host(n), epoch: item.epoch, ttlMs: item.ttlMs, sticky: item.sticky }, dryRun);
            const booked = noted.length - before.noted;
            if (booked > 0 && units.reserved > before.reserved) expect(units.enforced).toBeLessThanOrEqual(20);
            if (booked > 0 && !each.sticky) takenOn += 1;
          } else if (each.do === 'upgrade') {
            const unit = book.lendUnit(host(each.host)) ?? units.control(book.epochOf(host(each.host)) > 0);
            if (typeof unit !== 'string') sockets.push({ unit, opened: false });
          } else if (each.do === 'open' || each.do === 'close') {
            const socket = sockets[each.socket];
            if (socket === undefined) continue;
            if (each.do === 'open') socket.unit.opened();
            else sockets.splice(each.socket, 1)[0]?.unit.release();
          } else if (each.do === 'seat') {
            book.seated(host(each.host), each.epoch, book.find(host(each.host), each.epoch) ?? null);
          } else if (each.do === 'wait') clock.advance(each.ms);
          else book.void();
          expect(units.enforced).toBeLessThanOrEqual(120);
          expect(units.reserved).toBeLessThanOrEqual(20);
          // Sweeps, too: what has expired is counted by neither.
          const { size } = book;
          expect(units.reserved).toBeLessThanOrEqual(size);
          expect(takenOn).toBeLessThanOrEqual(LIMITS.intakeBurst + (5 * clock.now()) / 1_000);
        }
        for (const { unit } of sockets) unit.release();
        clock.advance(LIMITS.bookingTtlMs + 1_000);
        expect([units.enforced, units.physical, units.inFlight, units.reserved, units.faults]).toEqual([0, 0, 0, 0, 0]);
        expect(clock.armed).toBe(0);
      }),
      { numRuns: 500 },
    );
  });
});
