import { inFile, type MutationGroup } from './mutation.ts';

const TRIP_RACE = 'race/trip-slots.test.ts';

/** 83, and each condition of the claim. */
const slots = [
  ...inFile(
    'modes/claim_trip_slot.sql',
    ['83 nobody is counted', 'select count(*)', 'select 0 * count(*)'],
    ['7 its own row counts', 'e.cell_id <> claim_trip_slot.cell_id and ', ''],
    ['7 also before anybody is judged', 'if not relay.hearing(v_now) then', 'if false then'],
    ['7 one slot too many', 'elsif claim_trip_slot.slots <= (', 'elsif claim_trip_slot.slots < ('],
  ),
  ...inFile(
    'modes/holds_trip_slot.sql',
    ['76 also a deliberate db', "p_admit_mode = 'reserve' and p_effective.mode", 'p_effective.mode'],
    ['75 also one that says reserve', "and p_effective.mode = 'db'", ''],
    ['30 for ever', "\n    and p_effective.updated_at > p_now - relay.span_of('tripSlotTtlMs')", ''],
    [
      '83 the process is asked too',
      "p_admit_mode = 'reserve' and p_effective.mode",
      "p_admit_mode = 'reserve' and relay.is_incarnation(p_effective.cell_id, p_effective.incarnation) and p_effective.mode",
    ],
    ['83 the heartbeat is asked too', "relay.span_of('tripSlotTtlMs')", "relay.span_of('heartbeatTtlMs')"],
  ),
];

const records = [
  ...inFile(
    'modes/admit_mode_refusal.sql',
    [
      'reserve with an open migration',
      "when p_mode = 'reserve' and relay.has_open_migration(p_cell.cell_id)",
      'when false',
    ],
    ['reserve with an open drain', "when p_mode = 'reserve' and relay.has_open_drain(p_cell.cell_id)", 'when false'],
    ['db before the flag', "when p_mode = 'db' and p_cell.flags ->> 'admitMode' = 'reserve'", 'when false'],
    [
      'db before the process',
      "= 'reserve'\n      then 'cell_admits_reserve'",
      "= 'reserve'\n      and false then 'cell_admits_reserve'",
    ],
  ),
  ...inFile('modes/effective_mode.sql', [
    'a dead process holds the record up',
    "\n    where e.cell_id = p_cell_id and r.heard_at > p_now - relay.span_of('heartbeatTtlMs')",
    '\n    where e.cell_id = p_cell_id',
  ]),
  ...inFile(
    'modes/flags_refusal.sql',
    ['flags of any generation', 'when p_cell.flags_generation <> p_expected_generation', 'when false'],
    ['a bad value passes', 'when not relay.flags_are_valid(p_flags)', 'when false'],
    ['reserve before the record', "when p_cell.admit_mode <> 'reserve'", 'when false'],
    ['a tripped cell is re-armed by accident', "relay.effective_mode(p_cell.cell_id, p_now) = 'db' then", 'false then'],
  ),
  ...inFile('modes/is_integer_within.sql', [
    '84 a fraction passes',
    '(p_value)::numeric = trunc((p_value)::numeric) and ',
    '',
  ]),
];

const admission = [
  ...inFile('cells/admission_refusal.sql', [
    'two operators undo each other',
    'when p_cell.admission_generation <> p_expected_generation',
    'when false',
  ]),
  ...inFile('cells/set_admission.sql', [
    'general while it drains',
    "set_admission.admission = 'general' and relay.has_open_drain",
    'false and relay.has_open_drain',
  ]),
  ...inFile(
    'cells/isolate_for_roll.sql',
    [
      'the stamp of a failed wave is lost',
      "if (v_now - v_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true then",
      'if true then',
    ],
    [
      'a roll opens a cell that is being emptied',
      "case when v_cell.admission = 'existing-only' then",
      'case when false then',
    ],
  ),
  ...inFile('cells/restore_after_roll.sql', [
    'the drain order outlives the roll',
    'if v_cell.drain_incarnation is not null then',
    'if false then',
  ]),
  ...inFile(
    'cells/retire_refusal.sql',
    ['with hosts', "then 'cell_has_hosts'", "and false then 'cell_has_hosts'"],
    ['while it takes hosts', "when p_cell.admission <> 'existing-only'", 'when false'],
    ['while it is heard', "then 'cell_still_heard'", "and false then 'cell_still_heard'"],
    ['with an open migration', 'when relay.has_open_migration(p_cell.cell_id)', 'when false'],
    ['only when no row was ever there', "and a.last_activity_at > p_now - relay.span_of('dormantTtlMs')", ''],
  ),
];

const ledger = inFile('ledger/record_seats.sql', [
  'P2 the seat at the same epoch elsewhere is not stale',
  '(v_row.cell_id, v_row.epoch) = (v_seat.cell_id, v_seat.epoch)',
  'v_row.epoch = v_seat.epoch',
]);

export const modes: MutationGroup[] = [
  { about: 'trip slots', tests: ['modes.sql'], mutations: slots },
  {
    about: 'trip slots, claimed together',
    tests: [],
    mutations: inFile('modes/claim_trip_slot.sql', [
      '83 the lock is removed',
      'elsif not pg_try_advisory_xact_lock(relay.trip_space()) then',
      'elsif false then',
      TRIP_RACE,
    ]),
  },
  {
    about: 'a process writes over its successor',
    tests: [],
    mutations: inFile('modes/write_effective_mode.sql', [
      'the process is not looked at under the lock',
      'if not relay.is_incarnation(p_cell_id, p_incarnation) then',
      'if false then',
      'race/operators-and-cells.test.ts',
    ]),
  },
  { about: 'modes and flags', tests: ['modes.sql'], mutations: records },
  { about: 'admission, rolls, retirement', tests: ['admission.sql'], mutations: admission },
  { about: 'the ledger', tests: ['ledger.sql'], mutations: ledger },
];
