import { LIMITS } from '../../contract/index.ts';

/**
 * A reserve cell that hears from no director that books seats, and goes over to the database (P7; 03, trip slots).
 *
 *   off ─ armed → armed ─ trip → tripped                 no number of slots: at once
 *   armed ─ hold → held                                  no slot at all: never
 *   armed | held ─ claim → claiming ─ granted → tripped  a slot of so many in the fleet
 *   claiming ─ refused → held ─ contact → armed
 *   claiming ─ late → armed                              a director was heard meanwhile: the slot is given back
 *   tripped ─ lapsed → lapsed ─ claim → reclaiming       it could not say for too long that it holds its slot
 *
 * Tripped is for good: only flags of a new generation arm the cell again. `null` marks an event that means nothing in a state.
 */
export const TRIP_STATES = ['off', 'armed', 'claiming', 'held', 'tripped', 'lapsed', 'reclaiming'] as const;
export type TripState = (typeof TRIP_STATES)[number];

export const TRIP_EVENTS = [
  'armed',
  'disarmed',
  'contact',
  'trip',
  'hold',
  'claim',
  'granted',
  'late',
  'refused',
  'lapsed',
] as const;
export type TripEvent = (typeof TRIP_EVENTS)[number];

/** What flags of a new generation do in every state. */
const BY_FLAGS = { armed: 'armed', disarmed: 'off' } as const;
const NOTHING = {
  contact: null,
  trip: null,
  hold: null,
  claim: null,
  granted: null,
  late: null,
  refused: null,
  lapsed: null,
} as const;

export const TRIP_TRANSITIONS: Record<TripState, Record<TripEvent, TripState | null>> = {
  off: { ...NOTHING, armed: 'armed', disarmed: null },
  armed: { ...NOTHING, ...BY_FLAGS, trip: 'tripped', hold: 'held', claim: 'claiming' },
  claiming: { ...NOTHING, ...BY_FLAGS, granted: 'tripped', late: 'armed', refused: 'held' },
  held: { ...NOTHING, ...BY_FLAGS, contact: 'armed', claim: 'claiming' },
  tripped: { ...NOTHING, ...BY_FLAGS, lapsed: 'lapsed' },
  lapsed: { ...NOTHING, ...BY_FLAGS, claim: 'reclaiming' },
  reclaiming: { ...NOTHING, ...BY_FLAGS, granted: 'tripped', refused: 'held' },
};

/** What the watch goes by, once a second. */
export interface TripFacts {
  state: TripState;
  /** No director was heard for longer than the window. */
  silent: boolean;
  /** Of the flags: undefined trips without asking, 0 never. */
  slots: number | undefined;
  /** A claim can be sent now: nobody waits for the pool, and no write of the cell's row is under way. */
  canClaim: boolean;
  /** The last claim was long enough ago. */
  claimDue: boolean;
  /** The row says for sure what it is to say while the cell is in reserve: nothing of its own can arrive after the claim. */
  rowSettled: boolean;
  /** For so long no write of the row was acknowledged. */
  unacknowledgedMs: number;
}

/** A tripped cell that cannot say so for this long asks anew: the others stop counting its slot a minute later. */
export const TRIP_LAPSES_MS = LIMITS.tripSlotTtlMs - 60_000;

/** What the watch makes of it; null: nothing. Total over the states, and the order of its questions is the rule's. */
export function decideTrip(facts: TripFacts): TripEvent | null {
  const { state, silent, slots, canClaim } = facts;
  switch (state) {
    case 'armed':
      if (!silent) return null;
      if (slots === undefined) return 'trip';
      if (slots === 0) return 'hold';
      return canClaim && facts.rowSettled ? 'claim' : null;
    case 'held':
      if (!silent) return 'contact';
      return slots !== undefined && slots > 0 && canClaim && facts.rowSettled && facts.claimDue ? 'claim' : null;
    case 'tripped':
      return slots !== undefined && facts.unacknowledgedMs >= TRIP_LAPSES_MS ? 'lapsed' : null;
    case 'lapsed':
      return canClaim ? 'claim' : null;
    case 'off':
    case 'claiming':
    case 'reclaiming':
      return null;
  }
}
