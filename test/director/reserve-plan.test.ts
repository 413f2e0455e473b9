import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type HostKnowledge, hostFacts } from '../../server/director/host-facts.ts';
import { nextStep, type Situation, type Step } from '../../server/director/reserve-plan.ts';

/** Scenario 89, any situation: what the plan never does, whatever it knows. */

const cellId = fc.constantFrom('X', 'Y', 'Z');
const incarnation = fc.constantFrom('i-1', 'i-2');
const epoch = fc.integer({ min: 1, max: 12 });
const closeCode = fc.constantFrom(undefined, 1000, 1006, 4408, 4409, 4429, 4503);
const place = fc.record({ cellId, epoch });

const knowledge: fc.Arbitrary<HostKnowledge> = fc
  .record({
    seats: fc.array(
      fc.record({
        cellId,
        incarnation,
        epoch,
        generation: fc.constant(1),
        state: fc.constantFrom('active' as const, 'drain-only' as const),
        joinedAt: fc.constant(1),
      }),
      { maxLength: 3 },
    ),
    leavers: fc.array(
      fc.record({ cellId, incarnation, epoch, closeCode, ageMs: fc.integer({ min: 0, max: 1_200_000 }) }),
      { maxLength: 4 },
    ),
    bookedEpoch: fc.integer({ min: 0, max: 12 }),
    floor: fc.integer({ min: 0, max: 14 }),
    pending: fc.option(place),
    row: fc.option(place),
  })
  .map((known) => ({
    ...known,
    seats: known.seats.toSorted((a, b) => b.epoch - a.epoch),
    leavers: known.leavers.toSorted((a, b) => a.ageMs - b.ageMs),
  }));

const situation: fc.Arbitrary<Situation> = fc.record({
  mode: fc.constantFrom('off' as const, 'dry-run' as const, 'on' as const),
  reserveCells: fc.boolean(),
  facts: knowledge.map(hostFacts),
  rowRead: fc.constantFrom('not-yet' as const, 'done' as const, 'failed' as const),
  poolWaiters: fc.integer({ min: 0, max: 2 }),
  complete: fc.boolean(),
  sinceStartMs: fc.integer({ min: 0, max: 60_000 }),
  last: fc.option(
    fc.record({
      status: fc.constantFrom('pending' as const, 'live' as const, 'no-feed' as const, 'unverifiable' as const, null),
      reserve: fc.boolean(),
      disrupted: fc.boolean(),
    }),
  ),
  home: fc.option(fc.record({ incarnation, hasRoom: fc.boolean() })),
});

const epochsOf = (known: HostKnowledge) => [
  ...[...known.seats, ...known.leavers].map((it) => it.epoch),
  ...[known.pending, known.row].flatMap((it) => (it === null ? [] : [it.epoch])),
  known.bookedEpoch,
  known.floor,
];

describe('what is known of a host (89)', () => {
  test('its floor lies at or above every epoch that anything names (O22)', () => {
    fc.assert(
      fc.property(knowledge, (known) => {
        expect(hostFacts(known).floor).toBeGreaterThanOrEqual(Math.max(...epochsOf(known)));
      }),
    );
  });

  test('it goes back only to the newest epoch that is named, and never where its row says otherwise (P2)', () => {
    fc.assert(
      fc.property(knowledge, (known) => {
        const { rejoin } = hostFacts(known);
        if (rejoin === null) return;
        const named = epochsOf({ ...known, leavers: [] });
        expect(rejoin.epoch).toBeGreaterThanOrEqual(Math.max(...named));
        if (known.row?.epoch === rejoin.epoch) expect(known.row.cellId).toBe(rejoin.cellId);
      }),
    );
  });

  test('it goes back to no seat that drains, and to none that it was told to leave (4503, 4409)', () => {
    fc.assert(
      fc.property(knowledge, (known) => {
        const { rejoin } = hostFacts(known);
        if (rejoin === null) return;
        const isIt = (it: { cellId: string; epoch: number }) =>
          it.cellId === rejoin.cellId && it.epoch === rejoin.epoch;
        if (rejoin.seated) {
          expect(known.seats.find(isIt)?.state).toBe('active');
          return;
        }
        const left = known.leavers.find(isIt);
        expect([4503, 4409]).not.toContain(left?.closeCode);
        expect(left?.ageMs).toBeLessThanOrEqual(600_000);
      }),
    );
  });
});

const BOOKS: readonly Step['do'][] = ['rebook', 'book', 'ask-then-book'];

describe('the plan (89)', () => {
  test('with placement off or in a dry run it is always the database', () => {
    fc.assert(
      fc.property(situation, (it) => {
        fc.pre(it.mode !== 'on');
        expect(nextStep(it)).toEqual({ do: 'database' });
      }),
    );
  });

  test('reads a row once at most, within 2 s, and never for the sake of certainty while others wait for the pool', () => {
    fc.assert(
      fc.property(situation, (it) => {
        const step = nextStep(it);
        if (step.do !== 'read-row') return;
        expect(it.rowRead).toBe('not-yet');
        expect(step.timeoutMs).toBeLessThanOrEqual(2_000);
        if (it.facts.known) expect([it.poolWaiters, step.timeoutMs]).toEqual([0, 1_000]);
        expect(nextStep({ ...it, rowRead: 'done' }).do).not.toBe('read-row');
      }),
    );
  });

  test('books nobody of whom nothing is known and whose row could not be read', () => {
    fc.assert(
      fc.property(situation, (it) => {
        const facts = { ...it.facts, known: false, outranked: false, rejoin: null, lastCellId: null };
        const unread = { ...it, facts, last: null, rowRead: it.rowRead === 'done' ? 'failed' : it.rowRead };
        expect(BOOKS).not.toContain(nextStep(unread as Situation).do);
      }),
    );
  });

  test('answers from memory only for a cell that takes hosts, in the process that seated this one', () => {
    fc.assert(
      fc.property(situation, (it) => {
        if (nextStep(it).do !== 'remember') return;
        expect(it.facts.rejoin?.incarnation).toBe(it.home?.incarnation);
        expect(it.facts.rejoin?.seated || it.home?.hasRoom).toBe(true);
      }),
    );
  });

  test('puts nobody off for longer than 30 s because of cells that are silent', () => {
    fc.assert(
      fc.property(situation, (it) => {
        const step = nextStep({ ...it, sinceStartMs: 30_000 + it.sinceStartMs });
        expect(step).not.toMatchObject({ reason: 'map-incomplete' });
      }),
    );
  });

  test('does not book first what a cell in db mode may still hold, or one that is silent among others (P5, incident 26)', () => {
    fc.assert(
      fc.property(situation, (it) => {
        fc.pre(it.last !== null && (!it.last.reserve || it.last.disrupted));
        expect(nextStep(it).do).not.toBe('book');
      }),
    );
  });
});
