-- fence_begin, fence_start, fence_commit, fence_abort, fence_release, fence_status, view fences, and what a heartbeat does
-- to them (03, fences; scenarios F1–F11).
select plan(111);

create function pg_temp.inc(n int default 1) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
create function pg_temp.beat(cell text, process int default 1, ready boolean default true) returns text language sql as $$
  select relay_v1.heartbeat(c.cell_id, c.url, c.region, pg_temp.inc(process), timestamptz '2029-01-01' + make_interval(secs => process),
    ready, '{"enforced_units": 0, "inclusion_watermark": 1}'::jsonb || case when c.connection_hard_cap is null then '{}'
      else jsonb_build_object('total_connections', 0, 'in_flight_connections', 0, 'reserved_units', 0,
        'hard_cap', c.connection_hard_cap, 'unobserved_bound', c.connection_unobserved_bound) end)
  from relay.cell c where c.cell_id = cell
$$;
create function pg_temp.begin(cell text default 'x', process int default 1, operation text default 'op', reason text default 'disk',
  evidence jsonb default '{"a": 1}') returns text language plpgsql as $$
declare
  v relay_v1.fence_result := relay_v1.fence_begin(cell, pg_temp.inc(process), operation, reason, evidence);
begin
  if v.attempt_id is not null then
    perform set_config('test.attempt', v.attempt_id::text, true);
  end if;
  return v.outcome;
end $$;
create function pg_temp.attempt() returns uuid language sql as $$ select current_setting('test.attempt')::uuid $$;
create function pg_temp.started() returns text language sql as $$ select relay_v1.fence_start(pg_temp.attempt()) $$;
create function pg_temp.committed() returns text language sql as $$ select relay_v1.fence_commit(pg_temp.attempt(), '{"vm": "gone"}') $$;
create function pg_temp.aborted() returns text language sql as $$ select relay_v1.fence_abort(pg_temp.attempt(), 'no need') $$;
create function pg_temp.row_of() returns relay.fence_attempt language sql as $$
  select t from relay.fence_attempt t where t.attempt_id = pg_temp.attempt()
$$;
create function pg_temp.state_of() returns text language sql as $$ select relay.attempt_state(pg_temp.row_of(), relay.now()) $$;
create function pg_temp.ask(host text default 'h', by text default 'host') returns text language sql as $$
  select concat_ws(' ', r.outcome, r.rule, r.cause, r.cell_id, r.epoch) from relay_v1.assign('user', host, requested_by => by) r
$$;
create function pg_temp.last_change() returns text language sql as $$
  select concat_ws(' ', c.kind, c.to_cell, c.detail ->> 'state') from relay.change c where c.kind = 'fence' order by c.id desc limit 1
$$;
create function pg_temp.last_audit() returns text language sql as $$
  select concat_ws(' ', a.who, a.function, a.outcome) from relay.audit a order by a.id desc limit 1
$$;
create function pg_temp.holder() returns uuid language sql as $$ select m.attempt_id from relay.mutation_lease m where m.expires_at > relay.now() $$;

select test_clock.freeze('2030-01-01 00:00:00+00');
-- x: capped, to be fenced; z: another such; y: where hosts go
select relay_v1.register_cell(n, 'https://' || n, 'here', 900, 600, 60) from unnest(array['x', 'z']) n;
select relay_v1.register_cell('y', 'https://y', 'here', 1000);
select pg_temp.beat(n) from unnest(array['x', 'y', 'z']) n;
insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at) values ('user', 'h', 'x', 4, relay.now());

-- begin: its guards
select is(pg_temp.begin('nowhere'), 'cell_not_found', 'begin: no such cell');
select is(pg_temp.begin(), 'cell_fence_admission_enabled', 'begin: a general cell is refused');
update relay.cell c set admission = 'migration-only' where c.cell_id = 'x';
select is(pg_temp.begin(), 'cell_fence_admission_enabled', 'begin: a migration-only one too');
select is(pg_temp.last_audit(), current_user || ' fence_begin cell_fence_admission_enabled', 'a refused call leaves an audit row (F10)');
update relay.cell c set admission = 'existing-only' where c.cell_id in ('x', 'z');
select is(pg_temp.begin(process => 2), 'cell_fence_runtime_mismatch', 'begin: another process than was heard is refused');
select is((select count(*) from relay.fence_attempt), 0::bigint, 'nothing is written for them');
select throws_ok($$ select relay_v1.fence_begin('x', pg_temp.inc(), null, 'r') $$, 'RL001', null, 'an operation without a name is a misuse');
select throws_ok($$ select relay_v1.fence_begin('x', pg_temp.inc(), 'o', 'r', null) $$, 'RL001', null, 'so is no evidence');
select is(pg_temp.begin(), 'begun', 'begin');
select is(pg_temp.last_change(), 'fence x begun', 'is a change');
select is(pg_temp.last_audit(), current_user || ' fence_begin begun', 'and an audit row');
select is((pg_temp.row_of()).digest, encode(sha256(convert_to(jsonb_build_array('x', pg_temp.inc(), 'op', 'disk', '{"a": 1}'::jsonb)::text, 'utf8')), 'hex'), 'the digest is of all five');
select set_config('test.first', pg_temp.attempt()::text, true);

-- F3
select is(pg_temp.begin(), 'begun', 'F3 the same begins again');
select is(pg_temp.attempt()::text, current_setting('test.first'), 'F3 and finds the same attempt');
select is(pg_temp.begin(evidence => '{"a":    1}'), 'begun', 'F3 however its JSON is written');
select is(pg_temp.begin(operation => 'other'), 'cell_fence_attempt_evidence_mismatch', 'F3 another operation is refused');
select is(pg_temp.begin(reason => 'fire'), 'cell_fence_attempt_evidence_mismatch', 'F3 another reason');
select is(pg_temp.begin(evidence => '{"a": 2}'), 'cell_fence_attempt_evidence_mismatch', 'F3 other evidence');
select is(pg_temp.begin(evidence => '{"a": 1, "b": 1}'), 'cell_fence_attempt_evidence_mismatch', 'F3 more evidence');
select is((select count(*) from relay.fence_attempt), 1::bigint, 'F3 one attempt');
select is((select count(*) from relay.change c where c.kind = 'fence'), 1::bigint, 'F3 begun once');

-- F9
select is(pg_temp.holder(), pg_temp.attempt(), 'F9 it holds the mutation lease');
select is(pg_temp.begin('z'), 'mutation_lease_conflict', 'F9 another cell has to wait');
select is((select count(*) from relay.fence_attempt), 1::bigint, 'F9 and nothing of it stays');
select test_clock.advance('20 min');
select is(pg_temp.begin(), 'begun', 'F9 the same resumes');
select test_clock.advance('34 min 59.999 s');
select is(pg_temp.begin('z'), 'mutation_lease_conflict', 'F9 for 35 min more');
select test_clock.advance('1 ms');
select is(pg_temp.begin('z', operation => 'z-op'), 'begun', 'F9 then it is another''s');
select is(pg_temp.holder(), pg_temp.attempt(), 'F9 who holds it now');
select is(relay_v1.fence_start(current_setting('test.first')::uuid), 'mutation_lease_conflict', 'F9 the first has to wait with its start');
select is(pg_temp.aborted(), 'ok', 'F9 given up,');
select is(pg_temp.holder(), null, 'F9 the other frees it');
select is(pg_temp.last_change(), 'fence z aborted', 'an abort is a change');
select is(pg_temp.aborted(), 'ok', 'to give up twice is the same');
select is((pg_temp.row_of()).close_reason, 'no need', 'and says why');
select is(pg_temp.started(), 'cell_fence_attempt_aborted', 'what was given up does not start');
select is(pg_temp.committed(), 'cell_fence_attempt_aborted', 'nor commit');

-- F2
select set_config('test.attempt', current_setting('test.first'), true);
select is(pg_temp.state_of(), 'begun', 'F2 begun 54:59.999 ago');
select is(pg_temp.committed(), 'cell_fence_attempt_not_started', 'commit needs a start');
select test_clock.advance('5 min');
select test_clock.advance('1 ms');
select is(pg_temp.state_of(), 'expired', 'F2 an unstarted attempt after 60 min');
select is(pg_temp.started(), 'cell_fence_attempt_expired', 'F2 does not start');
select is(pg_temp.last_audit(), current_user || ' fence_start cell_fence_attempt_expired', 'F10 which is audited');
select is(pg_temp.committed(), 'cell_fence_attempt_expired', 'F2 nor commit');
select is(pg_temp.begin(operation => 'next'), 'begun', 'F2 and does not block another');
select isnt(pg_temp.attempt()::text, current_setting('test.first'), 'F2 which is its own');
select is((select t.closed_as from relay.fence_attempt t where t.attempt_id::text = current_setting('test.first')), 'expired', 'F2 the first is closed');
select is(pg_temp.started(), 'ok', 'start');
select is(pg_temp.last_change(), 'fence x started', 'is a change');
select is(pg_temp.started(), 'ok', 'twice is the same');
select is((select count(*) from relay.change c where c.kind = 'fence' and c.detail ->> 'state' = 'started'), 1::bigint, 'and no change');
select test_clock.advance('3 hours');
select is(pg_temp.state_of(), 'started', 'F2 a started attempt stays usable');
select is(pg_temp.begin(), 'cell_fence_attempt_evidence_mismatch', 'F2 and blocks another');

-- F7
select is(pg_temp.aborted(), 'cell_fence_apply_may_have_started', 'F7 a started attempt is not given up');
select is(pg_temp.last_audit(), current_user || ' fence_abort cell_fence_apply_may_have_started', 'F10 which is audited');
select is(relay_v1.fence_abort(gen_random_uuid(), 'x'), 'cell_fence_attempt_not_found', 'nor one that never was');
select is(relay_v1.fence_start(gen_random_uuid()), 'cell_fence_attempt_not_found', 'nor is that started');
select is(relay_v1.fence_commit(gen_random_uuid()), 'cell_fence_attempt_not_found', 'or committed');

-- F4, F1
select is(pg_temp.beat('x'), 'ok', 'the cell is heard again,');
select is(pg_temp.state_of(), 'started', 'the attempt of its own process goes on');
select is(pg_temp.committed(), 'cell_fence_runtime_not_stale', 'F4 commit while fresh is refused');
select test_clock.advance('44.999 s');
select is(pg_temp.committed(), 'cell_fence_runtime_not_stale', 'F4 44.999 s after the heartbeat too');
select test_clock.advance('1 ms');
select pg_temp.beat('y');
select is(pg_temp.ask(), 'unavailable home-unavailable draining', 'F1 capped, dead, existing-only: begun is not committed, assign is refused');
select is(relay_v1.sweep_dead_cells(), 0, 'F1 and the sweep moves nobody');
update relay.cell c set admission = 'migration-only' where c.cell_id = 'x';
select is(pg_temp.committed(), 'cell_fence_admission_enabled', 'F4 commit while admission is on is refused');
update relay.cell c set admission = 'existing-only' where c.cell_id = 'x';
select is((select count(*) from relay.fence), 0::bigint, 'no fence so far');
select is(relay_v1.fence_release('x'), 'cell_fence_attestation_missing', 'none to release');
select is(pg_temp.committed(), 'ok', 'F4 45 s after the heartbeat it is committed');
select is(pg_temp.last_change(), 'fence x committed', 'which is a change');
select is(pg_temp.last_audit(), current_user || ' fence_commit ok', 'and an audit row');
select is(pg_temp.holder(), null, 'F9 success frees the mutation lease');
select is((pg_temp.row_of()).commit_evidence, '{"vm": "gone"}', 'with the evidence');
select ok(relay.is_fenced('x', relay.now()), 'x is fenced');
select is((pg_temp.row_of()).completed_at, relay.now(), 'complete now');
select test_clock.advance('4 min');
select pg_temp.beat('y');
select is(pg_temp.committed(), 'ok', 'F4 commit twice');
select is((pg_temp.row_of()).completed_at, relay.now() - interval '4 min', 'F4 completed_at is fixed');
select is((select f.expires_at from relay.fence f where f.cell_id = 'x'), relay.now() + interval '5 min', 'F4 and renews 5 min');
select is(pg_temp.begin(operation => 'next'), 'begun', 'the same begins again');
select is(pg_temp.state_of(), 'completed', 'complete');
select is(pg_temp.holder(), null, 'and needs no mutation lease');
select is(pg_temp.begin(), 'cell_fence_already_attested', 'another is not needed');
select is(pg_temp.aborted(), 'cell_fence_apply_may_have_started', 'F7 nor is it given up now');
select is(array[v.cell_id, v.state, v.fenced::text, v.expires_in::text, v.operation_id, v.lease_expires_in::text],
  array['x', 'completed', 'true', '00:05:00', 'next', null], 'view fences') from relay_v1.fences v;
select is((select jsonb_build_array(s -> 'outcome', s -> 'fenced', s #> '{fence,cell_id}', jsonb_array_length(s -> 'attempts'), s #> '{attempts,0,state}', s -> 'mutation_lease')
  from relay_v1.fence_status('x') s), '["ok", true, "x", 2, "completed", null]', 'fence_status');
select is(relay_v1.fence_status('nowhere'), '{"outcome": "cell_not_found"}', 'of no cell');
select test_clock.advance('4 min 59.999 s');
select ok(relay.is_fenced('x', relay.now()), 'F4 it holds 5 min');
select test_clock.advance('1 ms');
select ok(not relay.is_fenced('x', relay.now()), 'F4 and no longer');
select is((select v.fenced from relay_v1.fences v), false, 'as the view says');
select is(pg_temp.committed(), 'ok', 'F4 committing renews it then too');
select ok(relay.is_fenced('x', relay.now()), 'F4 indeed');

-- each condition of `committed`
update relay.cell c set admission = 'migration-only' where c.cell_id = 'x';
select ok(not relay.is_fenced('x', relay.now()), 'no fence counts on a cell that takes hosts');
update relay.cell c set admission = 'existing-only' where c.cell_id = 'x';
update relay.cell_runtime r set heard_at = relay.now() + interval '1 ms' where r.cell_id = 'x';
select ok(not relay.is_fenced('x', relay.now()), 'nor one that is older than the last heartbeat');
update relay.cell_runtime r set heard_at = relay.now() where r.cell_id = 'x';
select ok(relay.is_fenced('x', relay.now()), 'one of the same moment does');
update relay.cell_runtime r set incarnation = pg_temp.inc(9) where r.cell_id = 'x';
select ok(not relay.is_fenced('x', relay.now()), 'F6 a fence of another process does not count');
update relay.cell_runtime r set incarnation = pg_temp.inc(1) where r.cell_id = 'x';

-- release, F5, F1
select is(relay_v1.fence_release('x'), 'ok', 'release');
select is(pg_temp.last_change(), 'fence x released', 'is a change');
select ok(not relay.is_fenced('x', relay.now()), 'then there is none');
update relay.cell_runtime r set heard_at = relay.now() - interval '45 s' where r.cell_id = 'x';
select is(pg_temp.committed(), 'ok', 'the attempt may commit again');
select is(pg_temp.beat('x', ready => false), 'ok', 'F5 a heartbeat, though not ready,');
select is(pg_temp.last_change(), 'fence x voided', 'F5 voids the fence');
select is(pg_temp.ask(), 'unavailable home-unavailable draining', 'F5 and assign is refused again');
select test_clock.advance('45 s');
select pg_temp.beat('y');
select is(pg_temp.committed(), 'ok', 'F1 committed again');
select is(pg_temp.ask(), 'granted fenced y 5', 'F1 then the host is moved');

-- F11, F6
update relay.assignment a set cell_id = 'z', epoch = 6 where a.relay_host_id = 'h';
select pg_temp.begin('z', operation => 'z-2'), pg_temp.started();
select is(pg_temp.beat('z', process => 2), 'ok', 'F11 a started attempt whose cell comes back as another process');
select is(pg_temp.state_of(), 'superseded', 'F11 is superseded');
select is(pg_temp.holder(), null, 'F11 and frees the mutation lease');
select is(array[pg_temp.started(), pg_temp.committed(), pg_temp.aborted()], array_fill('cell_fence_attempt_superseded'::text, array[3]), 'F11 it goes no further');
select test_clock.advance('45 s');
select is(pg_temp.begin('z', operation => 'z-2'), 'cell_fence_runtime_mismatch', 'F6 the old process is no longer the one to fence');

-- F2, F9
select pg_temp.beat('z', process => 2);
select is(pg_temp.begin('z', process => 2, operation => 'slow'), 'begun', 'F9 an attempt');
select test_clock.advance('50 min');
select is(pg_temp.begin('z', process => 2, operation => 'slow'), 'begun', 'F9 that is resumed late in its hour');
select test_clock.advance('10 min');
select is(pg_temp.begin('z', process => 2, operation => 'next'), 'begun', 'F2 frees the mutation lease when it has expired');
select pg_temp.aborted();

-- F10
set session authorization relay_director;
select set_config('test.answers', concat_ws(' ', (relay_v1.fence_begin('z', pg_temp.inc(2), 'o', 'r')).outcome, relay_v1.fence_start(pg_temp.attempt()),
  relay_v1.fence_commit(pg_temp.attempt()), relay_v1.fence_abort(pg_temp.attempt(), 'r'), relay_v1.fence_release('z'),
  relay_v1.fence_status('z') ->> 'outcome'), true);
reset session authorization;
select is(current_setting('test.answers'), 'forbidden forbidden forbidden forbidden forbidden forbidden', 'F10 who is no operator is answered forbidden');
select is((select string_agg(a.function, ' ' order by a.id) from relay.audit a where a.who = 'relay_director' and a.outcome = 'forbidden'),
  'fence_begin fence_start fence_commit fence_abort fence_release fence_status', 'F10 and audited');
select * from finish();
