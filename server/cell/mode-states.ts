/**
 * How a cell admits hosts, as it goes over from one way to the other.
 *
 *   db ─ reserve → reserve ─ db → leaving ─ all-leased → db
 *
 * A cell that leaves reserve asks the database about everybody new at once, and counts as a reserve cell to the outside
 * until every host that it let in from memory holds a lease. `null` marks an event that changes nothing.
 */
export const MODE_STATES = ['db', 'reserve', 'leaving'] as const;
export type ModeState = (typeof MODE_STATES)[number];

export const MODE_EVENTS = ['reserve', 'db', 'all-leased'] as const;
export type ModeEvent = (typeof MODE_EVENTS)[number];

export const MODE_TRANSITIONS: Record<ModeState, Record<ModeEvent, ModeState | null>> = {
  db: { reserve: 'reserve', db: null, 'all-leased': null },
  reserve: { reserve: null, db: 'leaving', 'all-leased': null },
  leaving: { reserve: 'reserve', db: null, 'all-leased': 'db' },
};
