import { inFile, type MutationGroup } from './mutation.ts';

const BATCH_RACE = 'race/reregister.test.ts';

const reregistration = inFile(
  'seats/reregister_control.sql',
  ['90 at another epoch of the row', "when v_row.epoch > p_control.epoch then 'wrong_epoch'", ''],
  ['90 though the row names another cell', "when v_row.cell_id <> p_cell_id then 'wrong_cell'", ''],
  ['90 before the ledger has come', "when v_row.epoch < p_control.epoch then 'behind'", ''],
  ['90 over a newer control', 'and v_lease.generation > p_control.generation', 'and false'],
  [
    'V2 for an older process',
    "when not relay.is_incarnation(p_cell_id, p_incarnation) then 'stale_cell_incarnation'",
    "when false then ''",
  ],
);

const phones = inFile(
  'credentials/seat_for_phone.sql',
  ['88 a phone waits for the ledger', 'when v_seat_epoch > coalesce(v_row.epoch, 0)', 'when false'],
  ['P2 a seat at any epoch serves phones', 'v_seat_epoch > coalesce(v_row.epoch, 0)', 'v_seat_epoch > 0'],
  ['also of a db cell', " and c.admit_mode = 'reserve'", ''],
);

const STAMP_DUE = "if p_row.last_activity_at > p_now - relay.span_of('seatStampIntervalMs') then";

const ledger = inFile(
  'ledger/stamp_seat.sql',
  ['2 a seat is no activity', STAMP_DUE, 'if true then'],
  ['a stamp at every reconcile', STAMP_DUE, 'if false then'],
);

const census = [
  ...inFile('drains/start_drain.sql', ['a drain in reserve mode', "then 'cell_in_reserve_mode'", "and false then ''"]),
  ...inFile('drains/source_refusal.sql', [
    'an evacuation off one',
    "when v_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'",
    '',
  ]),
  ...inFile('drains/evacuation_refusal.sql', [
    'an evacuation onto one',
    "when v_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'",
    '',
  ]),
  ...inFile('cells/retire_refusal.sql', [
    'one is retired',
    "when p_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'",
    '',
  ]),
  ...inFile('cells/regions.sql', [
    'its region is not offered',
    "coalesce(relay.target_rejection(c, r, v_now), 'reserve') = 'reserve'",
    'relay.target_rejection(c, r, v_now) is null',
  ]),
];

const budget = [
  ...inFile(
    'budget/connection_budget.sql',
    ['B2 as many as there are is enough', 'v_b.budgeted < v_b.max_connections', 'v_b.budgeted <= v_b.max_connections'],
    ['B3 a listener is forgotten', ' + connection_budget.listeners_per_director', ''],
    ['B1 what is replaced is forgotten', 'v_b.directors + v_b.api, ', ''],
  ),
  ...inFile(
    'budget/cell_connections.sql',
    ['B1 a slot costs nothing', 'max(p.slots) + p_rolling', 'p_rolling'],
    ['79 the least of mixed values', 'max(p.slots)', 'min(p.slots)'],
    ['a fenced cell counts', 'where not relay.is_fenced(c.cell_id, p_now)', ''],
  ),
];

export const reserve: MutationGroup[] = [
  { about: 'leases for controls admitted from memory', tests: ['reregister.sql'], mutations: reregistration },
  {
    about: 'leases for controls admitted from memory, while others write',
    tests: [],
    mutations: inFile(
      'seats/reregister_control.sql',
      ['90 a batch waits for a row', 'for no key update skip locked;', 'for no key update;', BATCH_RACE],
      ['90 a batch waits for a lease', 'for update skip locked;', 'for update;', BATCH_RACE],
    ),
  },
  { about: 'phones before the ledger', tests: ['credentials_open.sql'], mutations: phones },
  { about: 'what the ledger records', tests: ['ledger.sql'], mutations: ledger },
  { about: 'the budget', tests: ['budget.sql'], mutations: budget },
  { about: 'functions of operators on a reserve cell', tests: ['reserve_census.sql'], mutations: census },
  {
    about: 'the claim of a slot, on the cell',
    tests: [],
    mutations: inFile('server/cell/effective-row.ts', [
      '83 the claim goes around the writer',
      'this.#writing = true;',
      "this.#writing = fn === 'claim_trip_slot';",
      'cell/dead-man.test.ts',
    ]),
  },
];
