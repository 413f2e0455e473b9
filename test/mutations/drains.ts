import { inFile, type MutationGroup } from './mutation.ts';

const RACES = 'race/drains.test.ts';

/** Every row of the table of migration_step, off and with each of its conditions dropped. */
const steps = inFile(
  'drains/migration_step.sql',
  ['1 off', "return 'overtaken';", 'null;'],
  ['1 whatever its epoch', 'and a.epoch = p_migration.epoch) then', ') then'],
  ['2 off', "if v_held = 'active' and p_migration.registered_at is null then", 'if false then'],
  [
    '2 with a mere promise',
    "if v_held = 'active' and p_migration.registered_at",
    'if v_held is not null and p_migration.registered_at',
  ],
  ['3 off', "if v_held = 'active' and v_left then", 'if false then'],
  ['3 while the source has its seat', "if v_held = 'active' and v_left then", "if v_held = 'active' then"],
  [
    '3 with a seat that expired',
    'and l.epoch = p_migration.epoch and l.expires_at > p_now',
    'and l.epoch = p_migration.epoch',
  ],
  [
    '3 a source lease that expired is a seat',
    'and l.cell_id = p_migration.source_cell and l.expires_at > p_now)',
    'and l.cell_id = p_migration.source_cell)',
  ],
  [
    '3 so is one of a process that is gone',
    'join relay.cell_runtime r on r.cell_id = l.cell_id and r.incarnation = l.incarnation\n',
    '',
  ],
  ['3 so is one of a fenced source', '\n    or relay.is_fenced(p_migration.source_cell, p_now);', ';'],
  ['4 does not wait 15 min', 'elsif p_migration.expires_at > p_now\n    or', 'elsif'],
  [
    '4 a pin does not wait longer',
    'num_nonnulls(p_migration.pinned_at, p_migration.registered_at) > 0',
    'p_migration.registered_at is not null',
  ],
  [
    '4 nor a mark',
    'num_nonnulls(p_migration.pinned_at, p_migration.registered_at) > 0',
    'p_migration.pinned_at is not null',
  ],
  ['4 waits for ever', "and p_migration.opened_at > p_now - relay.span_of('migrationAbandonedMs')\n", ''],
  ['4 waits for a fenced source', '\n      and not relay.is_fenced(p_migration.source_cell, p_now)', ''],
  ['5 off', '\n    or v_held is not null or not v_left then', ' then'],
  ['5 not for a promise', 'or v_held is not null or not v_left', 'or not v_left'],
  ['5 not for the source', 'or v_held is not null or not v_left', 'or v_held is not null'],
  [
    '6 off',
    "elsif p_migration.registered_at is not null then\n    return 'complete';",
    "elsif false then\n    return 'complete';",
  ],
  ['7 off', "then 'roll-back' else 'give-up'", "then 'give-up' else 'give-up'"],
  ['8 off', "then 'roll-back' else 'give-up'", "then 'roll-back' else 'roll-back'"],
  ['8 rolls back to whatever source', 'and relay.target_rejection(c, r, p_now) is null and c', 'and c'],
);

const effects = [
  ...inFile(
    'drains/settle_migration.sql',
    [
      'a registration is not completed at once',
      "v_step := relay.migration_step(v_migration, p_now);\n  end if;\n  if v_step <> 'complete'",
      "end if;\n  if v_step <> 'complete'",
    ],
    ['a completion is not told', '\'{"state": "completed"}\', p_now);', '\'{"state": "opened"}\', p_now);'],
  ),
  ...inFile('seats/attach_control.sql', [
    'an attach marks nothing',
    'perform relay.settle_migration(p_row.user_id, p_row.relay_host_id, p_now);',
    'null;',
  ]),
  ...inFile('seats/release_lease.sql', [
    'the end of the old seat completes nothing',
    'perform relay.settle_migration(release_lease.user_id, release_lease.relay_host_id, v_now);',
    'null;',
  ]),
  ...inFile('drains/abort_migration.sql', [
    'a move leaves the older migration open',
    'and m.epoch < p_epoch',
    'and m.epoch < 0',
  ]),
  ...inFile('drains/retire_leases.sql', [
    'a retiring lease ends before its grace',
    'expires_at = greatest(l.expires_at, p_retire_until)',
    'expires_at = l.expires_at',
  ]),
  ...inFile(
    'drains/open_migration.sql',
    ['a migration is not pinned', 'case when p_pinned then p_now end', 'null'],
    ['no process is named', '(select r.incarnation from relay.cell_runtime r where r.cell_id = p_source_cell)', 'null'],
  ),
  ...inFile('drains/advance_migration.sql', [
    'a roll-back does not look at the latch',
    'and pg_try_advisory_xact_lock_shared(relay.latch_space(), c.latch)',
    '',
    RACES,
  ]),
  ...inFile(
    'drains/relocate_host.sql',
    ['without an epoch the host is moved all the same', 'if v_epoch is null then\n    return null;\n  elsif', 'if'],
    [
      'what it held stays',
      "l.relay_host_id = p_host.relay_host_id and l.state <> 'retiring';",
      "l.relay_host_id = p_host.relay_host_id and l.state = 'none';",
    ],
    [
      'what retires ends too',
      "l.relay_host_id = p_host.relay_host_id and l.state <> 'retiring';",
      'l.relay_host_id = p_host.relay_host_id;',
    ],
  ),
  ...inFile('cells/cell_load.sql', [
    'what retires counts on a new process',
    "l.incarnation < r.incarnation and l.expires_at > p_now\n        and l.state <> 'retiring')",
    'l.incarnation < r.incarnation and l.expires_at > p_now)',
  ]),
];

const orders = [
  ...inFile(
    'drains/start_drain.sql',
    ['a general cell is drained', "when v_cell.admission = 'general' then 'drain_attempt_admission_enabled'", ''],
    ['a reserve cell is drained', "when v_cell.admit_mode = 'reserve' and", 'when false and'],
    [
      'a reserve cell is not, even for a roll',
      "and (v_now - v_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true\n",
      '',
    ],
    [
      'a stamp counts for ever',
      "(v_now - v_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true",
      'v_cell.roll_isolated_at is null',
    ],
    ['a cell that was never heard', "when v_incarnation is null then 'source_cell_unavailable'", ''],
    ['a migration of an older process', 'and m.source_incarnation is distinct from v_incarnation', 'and false'],
    [
      'one that is pinned already',
      'm.pinned_at is null\n        and m.source_incarnation',
      'true\n        and m.source_incarnation',
    ],
    ['what is open is not pinned', 'set pinned_at = v_now', 'set pinned_at = null'],
    [
      'the hosts are not counted',
      "(select count(*) from relay.lease l\n      where l.cell_id = start_drain.cell_id and l.state <> 'retiring' and l.expires_at > v_now)",
      '0',
    ],
    ['who is no operator', 'elsif not relay.may_operate() then', 'elsif false then'],
    [
      'its latch is not taken',
      'v_cell := relay.lock_cell(start_drain.cell_id);',
      'select c.* into v_cell from relay.cell c where c.cell_id = start_drain.cell_id;',
      RACES,
    ],
  ),
  ...inFile(
    'drains/cancel_drain.sql',
    [
      'cancelled without an order',
      'v_cell.cell_id is null or v_cell.drain_incarnation is null',
      'v_cell.cell_id is null',
    ],
    ['cancelled by anybody', 'if not relay.may_operate() then', 'if false then'],
  ),
  ...inFile('cells/cell_orders.sql', [
    'an order is for any process',
    'when c.drain_incarnation = cell_orders.incarnation then',
    'when true then',
  ]),
];

const evacuations = [
  ...inFile(
    'drains/source_refusal.sql',
    ['off a general cell', "when v_cell.admission = 'general' then 'drain_attempt_admission_enabled'", ''],
    ['off a reserve cell', "when v_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'", ''],
    ['off a cell that is not ready', 'r.cell_id = p_source_cell and r.ready and', 'r.cell_id = p_source_cell and'],
  ),
  ...inFile(
    'drains/evacuation_refusal.sql',
    ['to a reserve cell', "when v_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'", ''],
    ['to one that is emptied', "v_cell.admission = 'existing-only' or v_cell", 'v_cell'],
    ['to one that drains', 'or v_cell.drain_incarnation = v_runtime.incarnation\n', '\n'],
    [
      'to a silent one',
      "or (v_runtime.ready and v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')) is not true",
      '',
    ],
    [
      'to a full one',
      "when relay.load(p_target_cell, p_now) >= v_cell.unit_limit then 'relay_connection_headroom_exhausted'",
      '',
    ],
  ),
  ...inFile(
    'drains/may_be_evacuated.sql',
    ['off an unfinished migration', 'and m.completed_at is null and m.aborted_at is null)', 'and false)'],
    ['of a host on its way', "and l.state = 'granted'", 'and false'],
  ),
  ...inFile(
    'drains/evacuate_host.sql',
    ['without room', "if v_state = 'active' and not p_has_room then", 'if false then'],
    [
      'no migration is opened',
      'perform relay.open_migration(p_host.user_id, p_host.relay_host_id, v_epoch, p_host.cell_id, p_target_cell, p_pinned, p_now);',
      '',
    ],
    ['no seat is promised', 'perform relay.grant_relocated(p_host, p_target_cell, v_epoch, p_now);', ''],
  ),
  ...inFile(
    'drains/evacuate_cell.sql',
    ['to itself', "when evacuate_cell.source = evacuate_cell.target then 'target_matches_source'", ''],
    ['never pinned', 'v_pinned := relay.has_open_drain(evacuate_cell.source);', 'v_pinned := false;'],
    ['all at once', 'limit evacuate_cell.max_hosts\n', ''],
    ['by anybody', "when not relay.may_operate() then 'forbidden'", "when false then 'forbidden'"],
    [
      'its target is not looked at again',
      "relay.evacuation_refusal(evacuate_cell.target, v_now), 'ok')",
      "'ok')",
      RACES,
    ],
    ['its latches are not taken', 'perform relay.latch_pair(evacuate_cell.source, evacuate_cell.target);', '', RACES],
  ),
  ...inFile(
    'drains/supersede_refusal.sql',
    ['to the source', "when p_replacement in (p_source_cell, p_dead_target) then 'target_matches_source'", ''],
    ['of one that takes hosts', "when v_admission <> 'existing-only' then 'cell_fence_admission_enabled'", ''],
    ['without a fence', "when not relay.is_fenced(p_dead_target, p_now) then 'cell_fence_attestation_missing'", ''],
    ['to whatever replacement', 'else relay.evacuation_refusal(p_replacement, p_now)', 'else null'],
  ),
  ...inFile('drains/supersede_migration.sql', [
    'its pin is lost',
    'v_old.pinned_at is not null, p_now);',
    'false, p_now);\n  v_old.pinned_at := null;',
  ]),
];

const sweeps = [
  ...inFile(
    'sweeps/sweep_dead_cell.sql',
    ['all of a cell at once', "count(*) * relay.limit_of('deadCellSweepPercent') / 100.0", 'count(*)'],
    ['always the same', 'order by random()', 'order by a.relay_host_id'],
    ['as the host', "requested_by => 'sweep'", "requested_by => 'host'"],
  ),
  ...inFile(
    'sweeps/sweep_dead_cells.sql',
    ['two directors at once', 'and pg_try_advisory_xact_lock(relay.sweep_space(), c.latch)', '', 'race/fences.test.ts'],
    [
      'each cell up to the limit',
      'relay.sweep_dead_cell(v_cell.cell_id, v_left)',
      'relay.sweep_dead_cell(v_cell.cell_id, sweep_dead_cells.max_rows)',
    ],
  ),
  ...inFile(
    'sweeps/sweep_migrations.sql',
    ['of all at once', 'limit sweep_migrations.max_rows\n    )\n    select', ')\n    select'],
    ['what ended is kept for ever', "m.opened_at < v_now - relay.span_of('migrationRetentionMs')", 'false'],
    ['what is open is deleted', 'and num_nonnulls(m.completed_at, m.aborted_at) > 0', ''],
    ['waits for a host that is locked', 'for no key update skip locked\n  loop', 'for no key update\n  loop', RACES],
  ),
];

export const drains: readonly MutationGroup[] = [
  { about: 'Steps of a migration', tests: ['migrations.sql', 'drains.sql'], mutations: steps },
  {
    about: 'Migrations: effects',
    tests: ['drains.sql', 'migrations.sql'],
    mutations: effects.filter(({ race }) => race === undefined),
  },
  {
    about: 'Drain orders',
    tests: ['drains.sql', 'cells.sql'],
    mutations: orders.filter(({ race }) => race === undefined),
  },
  { about: 'Evacuations', tests: ['migrations.sql'], mutations: evacuations.filter(({ race }) => race === undefined) },
  {
    about: 'Sweeps',
    tests: ['sweep_dead_cells.sql', 'migrations.sql'],
    mutations: sweeps.filter(({ race }) => race === undefined),
  },
  {
    about: 'Drains, in two sessions',
    tests: [],
    mutations: [...effects, ...orders, ...evacuations, ...sweeps].filter(({ race }) => race !== undefined),
  },
];
