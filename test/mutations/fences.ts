import { inFile, type MutationGroup } from './mutation.ts';

const RACES = 'race/fences.test.ts';

const committed = inFile(
  'fences/is_fenced.sql',
  ['a fence of an attempt that is not complete', 'and t.completed_at is not null and t.closed_at is null', 'and false'],
  ['F4 on a cell that takes hosts', " and c.admission = 'existing-only'", ''],
  ['F6 of another process', ' and r.incarnation = f.incarnation', ''],
  ['F5 older than the last heartbeat', ' and r.heard_at <= f.committed_at', ''],
  ['F4 for ever', ' and f.expires_at > p_now', ''],
);

const steps = [
  ...inFile(
    'fences/fence_begin.sql',
    [
      'F4 begin on a cell that takes hosts',
      "when v_cell.admission <> 'existing-only' then 'cell_fence_admission_enabled'",
      '',
    ],
    ['F6 begin for another process', "when not found then 'cell_fence_runtime_mismatch'", ''],
    ['F10 begin by anybody', 'elsif not relay.may_operate() then', 'elsif false then'],
    ['F10 begin without an audit row', "perform relay.audit('fence_begin', v_arguments, v_result.outcome);", ''],
  ),
  ...inFile(
    'fences/begin_attempt.sql',
    ['F2 an expired attempt blocks', "relay.attempt_state(t, p_now) = 'expired'", 'false'],
    [
      'F3 another operation goes on',
      'if v_attempt.digest <> p_wanted.digest and v_attempt.completed_at is null then',
      'if false then',
    ],
    [
      'what is fenced is begun again',
      'elsif v_attempt.digest <> p_wanted.digest and relay.is_fenced(p_wanted.cell_id, p_now) then',
      'elsif false then',
    ],
    [
      'F9 without the mutation lease',
      'and not relay.take_mutation_lease(v_attempt.attempt_id, v_attempt.digest, p_now) then',
      'and false then',
    ],
    [
      'what is complete takes the mutation lease',
      'if v_attempt.completed_at is null\n      and not',
      'if true\n      and not',
    ],
    [
      'F3 begun again is told again',
      'if found then\n      perform relay.ring',
      'if true then\n      perform relay.ring',
    ],
  ),
  ...inFile(
    'fences/take_mutation_lease.sql',
    ['F9 the same conflicts', 'or m.digest = p_digest or', 'or'],
    ['F9 for ever', ' or m.expires_at <= p_now', ''],
    ['F9 taken from another', 'where m.digest is null or', 'where true or'],
  ),
  ...inFile(
    'fences/attempt_state.sql',
    ['F2 never expires', "then 'expired'", "then 'begun'"],
    ['F2 a started one expires', "when p_attempt.started_at is not null then 'started'\n", ''],
    ['a closed one goes on', 'when p_attempt.closed_as is not null then p_attempt.closed_as\n', ''],
  ),
  ...inFile(
    'fences/fence_start.sql',
    [
      'F9 start without the mutation lease',
      'if relay.take_mutation_lease(v_attempt.attempt_id, v_attempt.digest, v_now) then',
      'if true then',
    ],
    [
      'F2 start of an expired one',
      "if v_refusal is null and v_state = 'begun' then",
      "v_refusal := null;\n  if v_state in ('begun', 'expired') then",
    ],
    ['F10 start by anybody', 'if not relay.may_operate() then', 'if false then'],
  ),
  ...inFile(
    'fences/commit_refusal.sql',
    ['commit without a start', "when v_state = 'begun' then 'cell_fence_attempt_not_started'", ''],
    [
      'F4 commit on a cell that takes hosts',
      "when v_cell.admission <> 'existing-only' then 'cell_fence_admission_enabled'",
      '',
    ],
    [
      'F4 commit while fresh',
      "when v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs') then 'cell_fence_runtime_not_stale'",
      '',
    ],
    ['F11 commit of what was closed', 'coalesce(relay.attempt_refusal(v_state), case', 'coalesce(null, case'],
  ),
  ...inFile(
    'fences/fence_commit.sql',
    ['F4 completed_at moves', 'coalesce(t.completed_at, v_now)', 'v_now'],
    [
      'F4 a second commit renews nothing',
      'committed_at = excluded.committed_at,\n    expires_at = excluded.expires_at;',
      'committed_at = fence.committed_at;',
    ],
    ['F9 success does not free the lease', 'perform relay.free_mutation_lease(v_attempt.attempt_id);', ''],
    ['F10 commit by anybody', 'if not relay.may_operate() then', 'if false then'],
  ),
  ...inFile(
    'fences/fence_abort.sql',
    ['F7 abort after the start', 'elsif v_attempt.started_at is not null then', 'elsif false then'],
    ['F9 an abort does not free the lease', 'perform relay.free_mutation_lease(v_attempt.attempt_id);', ''],
    ['F10 abort by anybody', 'if not relay.may_operate() then', 'if false then'],
  ),
  ...inFile('fences/fence_release.sql', ['F10 release by anybody', 'if not relay.may_operate() then', 'if false then']),
  ...inFile(
    'fences/void_fence.sql',
    [
      'F5 a heartbeat leaves the fence',
      'delete from relay.fence f where f.cell_id = p_cell_id returning',
      'delete from relay.fence f where false returning',
    ],
    ['F11 a new process supersedes nothing', 't.incarnation <> p_incarnation', 'false'],
    ['F11 the same process supersedes its own', 't.incarnation <> p_incarnation', 'true'],
    ['F11 the lease stays', 'perform relay.free_mutation_lease(v_ended.attempt_id);', ''],
  ),
  ...inFile('cells/heartbeat.sql', [
    'F5 a heartbeat says nothing about fences',
    'perform relay.void_fence(heartbeat.cell_id, heartbeat.incarnation, v_now);',
    '',
  ]),
];

const races = [
  ...inFile(
    'fences/lock_attempt.sql',
    [
      'the runtime row is not locked before the checks',
      'perform from relay.cell_runtime r where r.cell_id = v_attempt.cell_id for update;',
      '',
      RACES,
    ],
    ['a commit takes no latch', 'perform relay.lock_cell(v_attempt.cell_id);', '', RACES],
  ),
  ...inFile('fences/fence_release.sql', [
    'a release takes no latch',
    'perform relay.lock_cell(fence_release.cell_id);',
    '',
    RACES,
  ]),
  ...inFile('fences/fence_begin.sql', [
    'F8 begin locks nothing',
    'v_cell := relay.lock_cell(fence_begin.cell_id);\n    perform from relay.cell_runtime r\n    where r.cell_id = fence_begin.cell_id and r.incarnation = fence_begin.incarnation\n    for update;',
    'select c.* into v_cell from relay.cell c where c.cell_id = fence_begin.cell_id;',
    RACES,
  ]),
];

export const fences: readonly MutationGroup[] = [
  { about: 'A committed fence', tests: ['fences.sql', 'sweep_dead_cells.sql'], mutations: committed },
  { about: 'Steps of a fence', tests: ['fences.sql'], mutations: steps },
  { about: 'Fences, in two sessions', tests: [], mutations: races },
];
