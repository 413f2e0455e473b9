import { inFile, type MutationGroup } from './mutation.ts';

const TRIP = 'cell/dead-man.test.ts';
const STATES = 'cell/trip-states.test.ts';
const ROW = 'cell/effective-row.test.ts';
const LEASES = 'cell/reregistration.test.ts';

/** What a cell itself decides about reserve mode: faults in TypeScript. */
export const reserveCell: readonly MutationGroup[] = [
  {
    about: 'the dead-man trip, on the cell',
    tests: [],
    mutations: [
      ...inFile(
        'server/cell/trip-states.ts',
        [
          '67 a claim does not wait for a write without an answer',
          'canClaim && facts.rowSettled ?',
          'canClaim ?',
          STATES,
        ],
        ['P7 a slot never lapses', 'facts.unacknowledgedMs >= TRIP_LAPSES_MS', 'false', STATES],
        [
          '61 a director that is heard ends the trip',
          'tripped: { ...NOTHING, ...BY_FLAGS,',
          "tripped: { ...NOTHING, ...BY_FLAGS, contact: 'armed',",
          STATES,
        ],
      ),
      ...inFile(
        'server/cell/dead-man.ts',
        ['66 the window itself is enough', 'this.silentMs > this.#windowMs', 'this.silentMs >= this.#windowMs', TRIP],
        ['64 a late grant counts', 'const wanted = this.silent ||', 'const wanted = true ||', TRIP],
        ['65 new flags have no window of their own', "if (flags.admitMode === 'reserve') this.contact();", '', TRIP],
        ['69 a claim before those who wait', 'admitted() && db.waiters() === 0', 'admitted()', TRIP],
        ['62 a hold is said at every claim', "to === 'held' && !this.#heldSaid", "to === 'held'", TRIP],
      ),
      ...inFile(
        'server/cell/effective-row.ts',
        ['70 a tripped row gives way for ever', 'tripped && ageMs >= FORCED_REFRESH_MS', 'false', ROW],
        ['70 a reserve row is forced', '!(tripped && ageMs', '!(ageMs', ROW],
        ['a lost reply of a claim is forgotten', 'if (this.#known?.mode !== text.mode) this.#known = null;', '', TRIP],
        ['P7 a suspended machine keeps its slot', ', now.wall - since.wall', '', TRIP],
      ),
    ],
  },
  {
    about: 'the way back to db, on the cell',
    tests: [],
    mutations: [
      ...inFile(
        'server/cell/reregistration.ts',
        ['90 silence is a refusal', "unanswered: 'again'", "unanswered: 'refused'", LEASES],
        ['90 all calls at once', 'this.#calls < this.#source.inFlight()', 'true', LEASES],
        [
          '90 goes on in reserve',
          "if (!this.#source.wanted()) this.#finish('back-in-reserve');",
          'if (false) return;',
          LEASES,
        ],
        [
          '90 the lease of a host that left is kept',
          'leases.release(session.host, session, seats.closeReason(session.host) ?? null);',
          '',
          LEASES,
        ],
      ),
      ...inFile(
        'server/cell/admit-modes.ts',
        [
          '90 db is said before the leases are there',
          "this.#mode === 'leaving' && leases.unleased().length === 0",
          "this.#mode === 'leaving'",
          TRIP,
        ],

        [
          '84 older flags are taken',
          'if (generation <= this.#generation) {',
          'if (false) {',
          'cell/admit-modes.test.ts',
        ],
      ),
    ],
  },
];
