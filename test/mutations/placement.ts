import { inFile, type MutationGroup } from './mutation.ts';

const INTERLEAVINGS = 'race/assign-interleavings.test.ts';
const DEAD_RESERVE = 'race/assign-dead-reserve.test.ts';

/** Every row of the table of assign (03), off and with each of its conditions dropped. */
const rows = inFile(
  'placement/decide_assign.sql',
  ['0 off', "when p_home.epoch < p_ask.epoch_floor and p_home.live then 'behind'", "when false then 'behind'"],
  ['0 also when the home is not live', 'p_ask.epoch_floor and p_home.live then', 'p_ask.epoch_floor then'],
  ['0 also at the floor', 'when p_home.epoch < p_ask.epoch_floor', 'when p_home.epoch <= p_ask.epoch_floor'],
  ['1 off', "when v_is_caller and p_home.cell_id is null then 'new'", "when false then 'new'"],
  ['1 for whoever asks', 'when v_is_caller and p_home.cell_id', 'when p_home.cell_id'],
  ['2 off', "and relay.is_dormant(p_ask, p_home, p_now) then 'dormant'", "and false then 'dormant'"],
  ['2 for whoever asks', 'when v_is_host and not p_home.holds', 'when not p_home.holds'],
  [
    '2 whatever its last activity',
    "p_home.last_activity_at <= p_now - relay.span_of('dormantTtlMs')",
    'p_home.last_activity_at is not null',
  ],
  ['2 also on a fresh reserve cell', 'and not (p_home.reserve and p_home.fresh)', ''],
  ['2 never on a reserve cell', 'not (p_home.reserve and p_home.fresh)', 'not p_home.reserve'],
  ['3 off', "then 'stranded'", "and false then 'stranded'"],
  ['3 for whoever asks', 'when v_is_host and p_home.admission = ', 'when p_home.admission = '],
  ['3 on any cell', "p_home.admission = 'existing-only'", 'p_home.admission is not null'],
  [
    '3 at once',
    "p_home.unattached_since <= p_now - relay.span_of('strandedAfterMs')",
    'p_home.unattached_since <= p_now',
  ],
  [
    '3 also an attached host',
    'and p_home.unattached_since <= p_now',
    'and coalesce(p_home.unattached_since, p_home.last_activity_at) <= p_now',
  ],
  [
    '3 however long ago it asked',
    "p_home.last_activity_at > p_now - relay.span_of('strandedAskWindowMs')",
    'p_home.last_activity_at is not null',
  ],
  ['4 off', "then 'roll-isolated'", "and false then 'roll-isolated'"],
  ['4 for whoever asks', 'when v_is_host and p_home.live and p_home.rolling', 'when p_home.live and p_home.rolling'],
  ['4 also when not live', 'v_is_host and p_home.live and p_home.rolling', 'v_is_host and p_home.rolling'],
  ['4 without a roll', 'p_home.live and p_home.rolling', "p_home.live and p_home.admission = 'migration-only'"],
  [
    '4 also with an open migration',
    "not relay.is_migrating(p_ask.user_id, p_ask.relay_host_id) then 'roll-isolated'",
    "true then 'roll-isolated'",
  ],
  ['5 off', "p_home.draining then 'draining-home'", "false then 'draining-home'"],
  [
    '5 for whoever asks',
    'when v_is_host and p_home.live and not p_home.reserve',
    'when p_home.live and not p_home.reserve',
  ],
  [
    '5 also on a reserve cell',
    'p_home.live and not p_home.reserve and p_home.draining',
    'p_home.live and p_home.draining',
  ],
  ['5 also when not live', 'p_home.live and not p_home.reserve', 'not p_home.reserve'],
  ['6 off', "when p_home.live and p_home.reserve then 'reserve-pin'", "when false then 'reserve-pin'"],
  ['6 also when not live', 'when p_home.live and p_home.reserve', 'when p_home.reserve'],
  ['6 on any cell', 'when p_home.live and p_home.reserve', 'when p_home.live'],
  ['7 off', "(p_home.holds or v_free_units > 0) then 'sticky'", "false then 'sticky'"],
  ['7 without room', '(p_home.holds or v_free_units > 0)', 'true'],
  ['7 only with a lease', '(p_home.holds or v_free_units > 0)', 'p_home.holds'],
  ['7 only with room', '(p_home.holds or v_free_units > 0)', 'v_free_units > 0'],
  ['8 off', "p_home.admission = 'general' then 'headroom'", "false then 'headroom'"],
  [
    '8 for whoever asks',
    'when v_is_host and p_home.live and p_home.admission',
    'when p_home.live and p_home.admission',
  ],
  ['8 on any cell', "p_home.live and p_home.admission = 'general'", 'p_home.live'],
  ['9 off', "when p_home.live then 'no-headroom'", "when false then 'no-headroom'"],
  ['10 off', "then 'roll-replaced'", "and false then 'roll-replaced'"],
  ['10 for whoever asks', 'when v_is_caller and p_home.rolling', 'when p_home.rolling'],
  ['10 without a roll', 'v_is_caller and p_home.rolling', 'v_is_caller'],
  ['10 also when silent', 'p_home.rolling and p_home.fresh', 'p_home.rolling'],
  ['10 whichever process', 'p_home.started_at > p_home.roll_isolated_at', 'true'],
  [
    '10 started at the stamp',
    'p_home.started_at > p_home.roll_isolated_at',
    'p_home.started_at >= p_home.roll_isolated_at',
  ],
  ['10 with somebody on it', '(p_home.idle or not p_home.capped)', 'true'],
  ['10 an uncapped cell by its counts', '(p_home.idle or not p_home.capped)', 'p_home.idle'],
  [
    '10 also with an open migration',
    "not relay.is_migrating(p_ask.user_id, p_ask.relay_host_id) then 'roll-replaced'",
    "true then 'roll-replaced'",
  ],
  ['11 off', "then 'dead-uncapped'", "and false then 'dead-uncapped'"],
  ['11 for whoever asks', 'when v_is_host and p_home.heard_at', 'when p_home.heard_at'],
  ['11 never heard', 'p_home.heard_at is not null and not p_home.capped', 'not p_home.capped'],
  ['11 also capped', 'p_home.heard_at is not null and not p_home.capped', 'p_home.heard_at is not null'],
  ['11 also pinned', 'and not relay.is_pinned(p_ask, p_home) and', 'and'],
  ['11 also when not hearing', 'and relay.is_judged(p_home, p_now)', ''],
  ['12 off', "relay.is_fenced(p_home.cell_id, p_now) then 'fenced'", "false then 'fenced'"],
  ['12 for an operator too', "when p_ask.requested_by <> 'operator' and", 'when'],
  ['12 for the host alone', "p_ask.requested_by <> 'operator'", 'v_is_host'],
  ['13 off (36)', "then 'dead-reserve'", "and false then 'dead-reserve'"],
  ['13 without evidence', 'and relay.polls_say_dead(p_ask, p_home, p_now)', ''],
);

const conditions = [
  ...inFile(
    'placement/is_dead_reserve.sql',
    ['13 the requested_by condition dropped (36)', "return p_ask.requested_by = 'host'", 'return true'],
    ['13 the pin condition dropped (36)', 'and not relay.is_pinned(p_ask, p_home)', ''],
    ['13 the mode condition dropped (36)', 'coalesce(p_home.reserve, false)', 'true'],
    ['13 the unheard condition dropped (36)', "relay.unavailable_cause(p_home) = 'unheard'", 'true'],
    ['13 also when not hearing (22b)', 'and relay.is_judged(p_home, p_now)', ''],
    ['13 the floor condition dropped (36)', 'and p_ask.epoch_floor is not null', ''],
  ),
  ...inFile(
    'placement/polls_say_dead.sql',
    ['13 evidence about another cell', 'p_ask.dead_cell_id = p_home.cell_id', 'p_ask.dead_cell_id is not null'],
    ['13 evidence of any age', "between p_now - relay.span_of('pollEvidenceTtlMs') and p_now", '<= p_now'],
    [
      '13 evidence from the future',
      "between p_now - relay.span_of('pollEvidenceTtlMs') and p_now",
      "> p_now - interval '5 s'",
    ],
  ),
  ...inFile('placement/read_hints.sql', [
    '13 evidence that says not dead',
    "p_poll_evidence -> 'dead' = 'true'",
    'true',
  ]),
  ...inFile(
    'placement/is_pinned.sql',
    ['11, 13 an ended migration pins', 'and m.completed_at is null and m.aborted_at is null', ''],
    ['11, 13 an open migration without a pin pins', 'm.pinned_at is not null and ', ''],
    ['11, 13 a pin on another cell pins', ' and m.target_cell = p_home.cell_id', ''],
    ['11, 13 a pin of an older epoch pins', ' and m.epoch = p_home.epoch', ''],
  ),
  ...inFile('placement/is_migrating.sql', [
    '4, 10 an ended migration counts',
    ' and m.completed_at is null and m.aborted_at is null',
    '',
  ]),
  ...inFile(
    'placement/is_dormant.sql',
    ['2 also when not hearing', 'relay.is_judged(p_home, p_now) and', ''],
    ['2 whatever it held', "and l.expires_at > p_now - relay.span_of('dormantTtlMs')", 'and false'],
  ),
  ...inFile(
    'placement/unavailable_cause.sql',
    ['14 never booting', "when p_home.heard_at is null then 'booting'", ''],
    ['14 existing-only is not draining', "when p_home.admission = 'existing-only' then 'draining'", ''],
    ['14 a drain order is not draining', "when p_home.draining and not p_home.rolling then 'draining'", ''],
    ['14 a roll is draining', 'p_home.draining and not p_home.rolling', 'p_home.draining'],
    ['14 never unheard', "when not p_home.fresh then 'unheard'", ''],
  ),
  ...inFile('cells/hearing.sql', ['V5 silences are judged at once', ">= relay.span_of('hearingSettleMs')", ">= '0'"]),
];

const facts = inFile(
  'placement/read_home.sql',
  ['holds: a lease of an older epoch', 'v_lease.epoch = v_row.epoch and v_lease.state', 'v_lease.state'],
  ['holds: a retiring lease', "and v_lease.state <> 'retiring' and", 'and'],
  ['holds: an expired lease', ' and v_lease.expires_at > p_now, false),', ', false),'],
  [
    'live: 45 s is not too long',
    "v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')",
    "v_runtime.heard_at >= p_now - relay.span_of('heartbeatTtlMs')",
  ],
  ['live: ready or not', 'v_fresh and v_runtime.ready', 'v_fresh'],
  ['live: a cell that is not registered', 'where r.cell_id = v_cell.cell_id', 'where r.cell_id = v_row.cell_id'],
  [
    '4, 10 a stamp of any age (49)',
    "v_cell.roll_isolated_at > p_now - relay.span_of('rollStampTtlMs')",
    'v_cell.roll_isolated_at is not null',
  ],
  [
    '4, 10 a stamp of 2 h (49)',
    "v_cell.roll_isolated_at > p_now - relay.span_of('rollStampTtlMs')",
    "v_cell.roll_isolated_at >= p_now - relay.span_of('rollStampTtlMs')",
  ],
  [
    '5 an order for any process',
    'v_cell.drain_incarnation = v_runtime.incarnation',
    'v_cell.drain_incarnation is not null',
  ],
  [
    '10 connections in flight do not count',
    'v_runtime.in_flight_connections = 0 and v_runtime.enforced_units = 0',
    'true',
  ],
  ['10 nobody counted is nobody there', 'v_runtime.enforced_units = 0, false)', 'v_runtime.enforced_units = 0, true)'],
  [
    'an expired preference is used (incident 33)',
    "when v_row.preferred_region_at > p_now - relay.span_of('regionPreferenceTtlMs')",
    'when true',
  ],
  ['seen is ignored (V3)', 'p_ask.seen_epoch > coalesce(v_row.epoch, 0)', 'false'],
  [
    'seen at the same epoch',
    'p_ask.seen_epoch > coalesce(v_row.epoch, 0)',
    'p_ask.seen_epoch >= coalesce(v_row.epoch, 0)',
  ],
);

const outcomes = [
  ...inFile(
    'placement/outcome_of.sql',
    [
      '0 for a phone too',
      "p_rule = 'home-unavailable' or p_rule = 'behind' and not v_is_host",
      "p_rule = 'home-unavailable'",
    ],
    ['0 never on the home', "when p_rule = 'behind' and p_free_units > 0", 'when false'],
    ['0 on a full home', "p_rule = 'behind' and p_free_units > 0", "p_rule = 'behind'"],
    ['2 never the home', "p_rule not in ('behind', 'dormant')", "p_rule not in ('behind')"],
    ['6 with a lease', 'or not v_is_host or p_home.reserve', 'or not v_is_host'],
    ['6 with a stamp', "p_rule = 'sticky' and v_is_host and p_home.holds", 'v_is_host and p_home.holds'],
    ['7 with a lease for a phone', 'p_home.holds or not v_is_host or', 'p_home.holds or'],
    ['7 stamped for a phone', "'sticky' and v_is_host and p_home.holds", "'sticky' and p_home.holds"],
    ['7 stamped at every ask', "and p_home.last_activity_at <= p_now - relay.span_of('activityStampIntervalMs')", ''],
    [
      '4 forced',
      "p_rule in ('roll-isolated', 'draining-home', 'headroom', 'roll-replaced')",
      "p_rule in ('draining-home', 'headroom', 'roll-replaced')",
    ],
    [
      '5 forced',
      "p_rule in ('roll-isolated', 'draining-home', 'headroom', 'roll-replaced')",
      "p_rule in ('roll-isolated', 'headroom', 'roll-replaced')",
    ],
    [
      '8 forced',
      "p_rule in ('roll-isolated', 'draining-home', 'headroom', 'roll-replaced')",
      "p_rule in ('roll-isolated', 'draining-home', 'roll-replaced')",
    ],
    [
      '10 forced',
      "p_rule in ('roll-isolated', 'draining-home', 'headroom', 'roll-replaced')",
      "p_rule in ('roll-isolated', 'draining-home', 'headroom')",
    ],
    [
      '2, 3, 11 to 13 not forced',
      'v_d.forced := true; v_d.if_full',
      'v_d.forced := false; v_d.grace_ms := 60000; v_d.if_full',
    ],
    [
      '4, 5 without the grace of the drain',
      'case when p_home.draining then p_home.drain_grace_ms else',
      'case when false then 0 else',
    ],
    ['4, 5 in the preferred region', 'v_d.target_region := p_home.region;', 'null;'],
    ['4 no target: no capacity', "v_d.if_full := 'keep';", ''],
    ['10 no target: no capacity', "v_d.if_full := 'unavailable';", ''],
    ['10 no target, uncapped: unavailable', "p_rule = 'roll-replaced' and p_home.capped", "p_rule = 'roll-replaced'"],
    ['8 onto the home', "v_d.excluded := case when p_rule not in ('behind', 'dormant') then p_home.cell_id end;", ''],
    [
      'the preference does not count',
      'coalesce(p_ask.preferred_region, p_home.preference, p_home.region)',
      'p_home.region',
    ],
    ['a verdict is never wanted', "p_rule <> 'behind' and relay.is_dead_reserve(p_ask, p_home, p_now)", 'false'],
    ['a verdict is always wanted', "p_rule <> 'behind' and relay.is_dead_reserve(p_ask, p_home, p_now)", 'true'],
  ),
  ...inFile('placement/without_target.sql', [
    '4 kept without a lease',
    "case when v_d.free_units > 0 then 'grant' else 'keep' end",
    "'keep'",
  ]),
  ...inFile(
    'placement/write_move.sql',
    ['a forced move leaves the leases', 'if p_decision.forced then', 'if false then'],
    [
      'a move leaves older migrations open',
      'perform relay.abort_migration(p_ask.user_id, p_ask.relay_host_id, v_epoch, p_now);',
      '',
    ],
    ['5 opens no migration', "if p_decision.rule = 'draining-home' then", 'if false then'],
    ['5 opens a migration without a pin', 'p_target.cell_id, true, p_now)', 'p_target.cell_id, false, p_now)'],
  ),
  ...inFile(
    'placement/apply_assign.sql',
    ['place => false places', "not p_place and v_d.action <> 'grant'", 'false'],
    ['32 no target: kept', 'v_d := relay.without_target(v_d);', "v_d.action := 'keep';"],
  ),
  ...inFile(
    'placement/assign.sql',
    ['place => false records what was seen', "(assign.place or v_d.action in ('keep', 'refuse', 'grant'))", 'true'],
    [
      'what was seen is not recorded',
      "v_d.records and (assign.place or v_d.action in ('keep', 'refuse', 'grant'))",
      'false',
    ],
    [
      'what was seen is not recorded for a kept answer',
      "(assign.place or v_d.action in ('keep', 'refuse', 'grant'))",
      "v_d.action = 'grant'",
    ],
  ),
  ...inFile(
    'placement/record_seat.sql',
    ['28 the ledger lowers an epoch', 'where a.epoch < excluded.epoch', 'where a.epoch <> excluded.epoch'],
    ['28 the ledger writes an equal epoch', 'where a.epoch < excluded.epoch', 'where a.epoch <= excluded.epoch'],
    ['the ledger leaves leases', 'delete from relay.lease l where', 'delete from relay.lease l where false and'],
    [
      'the ledger leaves older migrations open',
      'perform relay.abort_migration(p_user_id, p_relay_host_id, p_epoch, p_now);',
      '',
    ],
    ['a recorded host is unattached', 'unattached_since = null', 'unattached_since = excluded.last_activity_at'],
  ),
  ...inFile(
    'placement/mint_epoch.sql',
    ['the floor is ignored', 'greatest(p_row_epoch, p_floor, v_base)', 'greatest(p_row_epoch, v_base)'],
    ['the base is ignored (V1)', 'greatest(p_row_epoch, p_floor, v_base)', 'greatest(p_row_epoch, p_floor)'],
    ['V4 without the jump', "case when v_blind then relay.limit_of('epochJump') else 1 end", '1'],
    ['V4 the jump with a floor too', 'p_floor is null and exists', 'exists'],
    ['V1 an epoch before a heartbeat after a failover', 'if v_timeline <> relay.timeline() then', 'if false then'],
  ),
];

const targets = [
  ...inFile(
    'placement/target_rejection.sql',
    ['target: not general', "when p_cell.admission <> 'general' then 'admission'", ''],
    [
      'target: a reserve cell (91)',
      "when p_cell.admit_mode = 'reserve' and not relay.runs_on_database(p_cell.cell_id, p_runtime.incarnation, p_now) then 'reserve'",
      '',
    ],
    [
      'target: never a reserve cell (91)',
      ' and not relay.runs_on_database(p_cell.cell_id, p_runtime.incarnation, p_now)',
      '',
    ],
    [
      'target: silent',
      "when (p_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')) is not true then 'unheard'",
      '',
    ],
    ['target: not ready', "when not p_runtime.ready then 'not_ready'", ''],
    ['target: draining', "when p_cell.drain_incarnation = p_runtime.incarnation then 'draining'", ''],
  ),
  ...inFile(
    'placement/runs_on_database.sql',
    ['target: whatever the effective row says (91)', " and e.mode = 'db'", ''],
    ['target: an effective row of another process (91)', ' and e.incarnation = p_incarnation', ''],
    ['target: an effective row of any age (91)', "and e.updated_at > p_now - relay.span_of('heartbeatTtlMs')", ''],
  ),
  ...inFile(
    'placement/choose_target.sql',
    ['target: a full cell', 'where n.load < s.unit_limit', ''],
    ['target: any region', 'and (v_region is null or c.region = v_region)', ''],
    ['target: the preferred region or none', 'array[p_region, null] end loop', 'array[p_region] end loop'],
    [
      'target: of two, the fuller',
      'order by n.load::float8 / s.unit_limit,',
      'order by -n.load::float8 / s.unit_limit,',
    ],
    ['target: two are looked at, and no more', 'array[2, null]::int[]', 'array[2]::int[]'],
  ),
];

const simulations = [
  ...inFile(
    'placement/cells_judged_dead.sql',
    ['simulated: a small sample', "k.cells >= relay.limit_of('verdictMinFeedCells') and", ''],
    ['simulated: most of the fleet', 'and k.cells_failing * 3 <= k.cells', ''],
    ['simulated: most of a region', 'and k.failing_in_region * 2 < k.in_region', ''],
  ),
  ...inFile(
    'placement/simulate_outage.sql',
    ['simulated: loads do not grow', 'v_loads[v_at] := v_loads[v_at] + 1;', ''],
    ['simulated: onto the dead', 'is null and c.cell_id <> all (v_dead)', 'is null'],
    ['simulated: a fleet that nobody hears is judged', 'v_home.judged := v_judged', 'v_home.judged := true'],
  ),
];

/** What only two sessions can see. */
const races = [
  ...inFile(
    'placement/attempt_assign.sql',
    [
      '31 not decided again under the latch',
      "if p_decision.action <> 'place' then",
      "if p_decision.action in ('grant', 'remint') then",
      DEAD_RESERVE,
    ],
    [
      'the room is not looked at again under the latch',
      'if v_free > 0 is not true then',
      'if false then',
      INTERLEAVINGS,
    ],
  ),
  ...inFile(
    'placement/take_latches.sql',
    ['31 the home is not latched', 'nullif(p_decision.latch, v_latch)', 'null', DEAD_RESERVE],
    [
      'a nearly full cell is latched shared',
      "v_free > relay.limit_of('exclusiveLatchBelowUnits')",
      'true',
      INTERLEAVINGS,
    ],
    ['31 every cell is latched alone', "v_free > relay.limit_of('exclusiveLatchBelowUnits')", 'false', DEAD_RESERVE],
  ),
  ...inFile('placement/lock_host.sql', ['33 the host is not locked', 'for no key update;', ';', DEAD_RESERVE]),
];

export const placement: readonly MutationGroup[] = [
  {
    about: 'the rows of assign',
    tests: [
      'assign_rules.sql',
      'assign_rolls.sql',
      'assign_dead.sql',
      'assign_seat_map.sql',
      'assign_reserve.sql',
      'epochs.sql',
      'assign_target.sql',
    ],
    mutations: [...rows, ...conditions, ...facts, ...outcomes, ...targets],
  },
  { about: 'simulate_outage', tests: ['simulate_outage.sql'], mutations: simulations },
  { about: 'two sessions', tests: [], mutations: races },
];
