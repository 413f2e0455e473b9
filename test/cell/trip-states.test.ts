import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { tripWindowMs } from '../../server/cell/dead-man.ts';
import {
  decideTrip,
  TRIP_EVENTS,
  TRIP_LAPSES_MS,
  TRIP_STATES,
  TRIP_TRANSITIONS,
  type TripEvent,
  type TripFacts,
  type TripState,
} from '../../server/cell/trip-states.ts';

const FACTS: TripFacts = {
  state: 'armed',
  silent: true,
  slots: 2,
  canClaim: true,
  claimDue: true,
  rowSettled: true,
  unacknowledgedMs: 0,
};
const decide = (over: Partial<TripFacts>) => decideTrip({ ...FACTS, ...over });

describe('the window of a cell', () => {
  it.each([
    ['production-gce-c1', 118_152],
    ['production-gce-c2', 87_470],
    ['production-gce-c3', 116_070],
    ['production-gce-c15', 78_910],
    ['production-gce-c32', 61_546],
    ['production-gce-c33', 109_216],
    ['production-gce-c34', 104_915],
    ['staging-gce-c1', 62_274],
    ['staging-gce-c2', 94_489],
  ])('of %s is %i ms', (cellId, windowMs) => {
    expect(tripWindowMs(cellId)).toBe(windowMs);
  });

  it('is 60 to 120 s for every cell', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 128, unit: 'binary' }), (cellId) => {
        const windowMs = tripWindowMs(cellId);
        expect(windowMs).toBeGreaterThanOrEqual(60_000);
        expect(windowMs).toBeLessThanOrEqual(120_000);
      }),
    );
  });
});

describe('the states of the dead-man trip', () => {
  it('are total: every state answers every event', () => {
    for (const state of TRIP_STATES)
      expect(Object.keys(TRIP_TRANSITIONS[state]).sort()).toEqual([...TRIP_EVENTS].sort());
  });

  it('all end with the flags: armed anew, or off', () => {
    for (const state of TRIP_STATES) {
      expect(TRIP_TRANSITIONS[state].armed).toBe('armed');
      expect(TRIP_TRANSITIONS[state].disarmed).toBe(state === 'off' ? null : 'off');
    }
  });

  it('61: are left by a tripped cell for new flags alone, or for want of a slot', () => {
    const leaving = TRIP_EVENTS.filter((event) => TRIP_TRANSITIONS.tripped[event] !== null);
    expect(leaving.sort()).toEqual(['armed', 'disarmed', 'lapsed']);
  });

  it('65: make nothing of an answer to a claim that flags have overtaken', () => {
    for (const state of ['off', 'armed'] as const) {
      for (const answer of ['granted', 'late', 'refused'] as const) expect(TRIP_TRANSITIONS[state][answer]).toBeNull();
    }
  });

  it.each<[string, Partial<TripFacts>, TripEvent | null]>([
    ['61: no number of slots: it trips without asking', { slots: undefined }, 'trip'],
    ['61: tripped is for good, whoever is heard', { state: 'tripped', silent: false }, null],
    ['62: a refused claim is sent again when it is due', { state: 'held' }, 'claim'],
    ['62: and not before', { state: 'held', claimDue: false }, null],
    ['63: no slots: held', { slots: 0 }, 'hold'],
    ['63: and held it stays', { state: 'held', slots: 0 }, null],
    ['66: as long as it is not silent for longer than the window it is in reserve', { silent: false }, null],
    ['67: a write of the row that was not answered comes first', { rowSettled: false }, null],
    ['67: and before every other claim too', { state: 'held', rowSettled: false }, null],
    ['69: no claim while others wait for the pool, or a write is under way', { canClaim: false }, null],
    ['69: nor from held', { state: 'held', canClaim: false }, null],
    ['69: no claim once the flags left reserve', { state: 'off' }, null],
    ['a director that is heard ends the hold', { state: 'held', silent: false }, 'contact'],
    ['one claim at a time', { state: 'claiming', claimDue: true }, null],
    [
      'P7: tripped, and for nine minutes not acknowledged',
      { state: 'tripped', unacknowledgedMs: TRIP_LAPSES_MS },
      'lapsed',
    ],
    ['P7: tripped, and acknowledged before that', { state: 'tripped', unacknowledgedMs: TRIP_LAPSES_MS - 1 }, null],
    ['P7: who took no slot loses none', { state: 'tripped', slots: undefined, unacknowledgedMs: 1e9 }, null],
    ['P7: lapsed, it asks at once, whoever is heard', { state: 'lapsed', silent: false, claimDue: false }, 'claim'],
    ['P7: but not before those who wait for the pool', { state: 'lapsed', canClaim: false }, null],
  ])('%s', (_name, facts, event) => {
    expect(decide(facts)).toBe(event);
  });

  /** A cell whose watch, directors, database and operators do what they like, in any order. */
  const step = fc.record({
    silent: fc.boolean(),
    canClaim: fc.boolean(),
    claimDue: fc.boolean(),
    rowSettled: fc.boolean(),
    unacknowledgedMs: fc.constantFrom(0, TRIP_LAPSES_MS),
    answer: fc.constantFrom('granted', 'refused', 'none'),
    flags: fc.constantFrom('armed', 'disarmed', 'same', 'same', 'same', 'same'),
  });

  it('61–69: go over to the database only in silence, with a slot where slots are counted, and never with none', () => {
    fc.assert(
      fc.property(fc.option(fc.integer({ min: 0, max: 3 }), { nil: undefined }), fc.array(step), (slots, steps) => {
        const cell: { state: TripState } = { state: 'armed' };
        const fire = (event: TripEvent) => {
          cell.state = TRIP_TRANSITIONS[cell.state][event] ?? cell.state;
        };
        for (const { answer, flags, ...facts } of steps) {
          const before = cell.state;
          const event = decideTrip({ ...facts, state: before, slots });
          if (event !== null) {
            expect(TRIP_TRANSITIONS[before][event], `${before} cannot ${event}`).not.toBeNull();
            fire(event);
          }
          if (event === 'claim') expect(facts.canClaim && (slots ?? 0) > 0).toBe(true);
          const claiming = cell.state === 'claiming' || cell.state === 'reclaiming';
          if (claiming && answer !== 'none') {
            const wanted = facts.silent || cell.state === 'reclaiming';
            fire(answer === 'refused' ? 'refused' : wanted ? 'granted' : 'late');
          }
          const tripped = cell.state === 'tripped';
          if (tripped && before !== 'tripped') {
            expect(slots).not.toBe(0);
            if (slots === undefined) expect(event).toBe('trip');
            else expect(answer).toBe('granted');
            if (before === 'armed' || before === 'held') expect(facts.silent).toBe(true);
          }
          if (before === 'tripped' && slots === undefined) expect(tripped).toBe(true);
          if (flags !== 'same') fire(flags);
        }
      }),
    );
  });
});
