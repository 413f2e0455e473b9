-- sweep_migrations, a row of the table of migration_step at a time; evacuate_cell, supersede_target, migration_status
-- (03, drains and fences; control-plane 5.2).
select plan(102);

create function pg_temp.inc(n int default 1) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
create function pg_temp.beat(cell text, process int default 1, more jsonb default '{}', ready boolean default true) returns text language sql as $$
  select relay_v1.heartbeat(cell, 'https://' || cell, 'here', pg_temp.inc(process), timestamptz '2029-01-01' + make_interval(secs => process),
    ready, '{"enforced_units": 0, "inclusion_watermark": 1}'::jsonb || more)
$$;
create function pg_temp.seat(host text, cell text default 'x', epoch bigint default 4, state text default 'active') returns void language sql as $$
  insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at) values ('user', host, cell, epoch, relay.now());
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, incarnation, generation, inclusion_watermark, state, units, expires_at)
  select 'user', host, cell, epoch, i.u, i.n, i.n, state, 1, relay.now() + interval '105 s'
  from (values (case when state = 'active' then pg_temp.inc() end, case when state = 'active' then 1 end)) i (u, n)
  where state <> 'none'
$$;
create function pg_temp.ask(host text, by text default 'host') returns text language sql as $$
  select concat_ws(' ', r.outcome, r.rule, r.cause, r.cell_id, r.epoch) from relay_v1.assign('user', host, requested_by => by) r
$$;
create function pg_temp.activate(host text, cell text, epoch bigint) returns text language sql as $$
  select r.outcome from relay_v1.activate_control('user', host, cell, pg_temp.inc(), epoch, 1, 2) r
$$;
create function pg_temp.release(host text, cell text, epoch bigint, generation bigint default 1) returns text language sql as $$
  select relay_v1.release_lease('user', host, cell, pg_temp.inc(), epoch, generation)
$$;
create function pg_temp.leases(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', l.cell_id, l.state, l.epoch), ', ' order by l.cell_id) from relay.lease l where l.relay_host_id = host
$$;
create function pg_temp.migration(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', m.source_cell, m.target_cell, m.epoch, case when m.pinned_at is not null then 'pinned' end,
    case when m.registered_at is not null then 'registered' end, case when m.completed_at is not null then 'completed' end,
    case when m.aborted_at is not null then 'aborted' end), ', ' order by m.epoch)
  from relay.migration m where m.relay_host_id = host
$$;
create function pg_temp.told(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', c.from_cell, c.to_cell, c.epoch, c.detail ->> 'state'), ', ' order by c.id)
  from relay.change c where c.relay_host_id = host and c.kind = 'migration'
$$;
create function pg_temp.home(host text) returns text language sql as $$
  select a.cell_id || ' ' || a.epoch from relay.assignment a where a.relay_host_id = host
$$;
-- A host on its way from x to y, as a move at epoch 5 leaves it.
create function pg_temp.moving(host text, pinned boolean default false, registered boolean default false, source text default 'retiring',
  target text default 'none', age interval default '0') returns void language sql as $$
  insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at) values ('user', host, 'y', 5, relay.now());
  insert into relay.migration (user_id, relay_host_id, epoch, source_cell, source_incarnation, target_cell, opened_at, expires_at, pinned_at, registered_at)
  values ('user', host, 5, 'x', pg_temp.inc(), 'y', relay.now() - age, relay.now() - age + interval '15 min',
    case when pinned then relay.now() end, case when registered then relay.now() end);
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, incarnation, generation, inclusion_watermark, state, units, expires_at, retire_until)
  select 'user', host, c, e, case when s <> 'granted' then pg_temp.inc() end, case when s <> 'granted' then 1 end, case when s <> 'granted' then 1 end,
    s, 1, relay.now() + interval '60 s', case when s = 'retiring' then relay.now() + interval '60 s' end
  from (values ('x', 4, source), ('y', 5, target)) v (c, e, s) where s <> 'none'
$$;
create function pg_temp.step(host text) returns text language sql as $$
  select relay.migration_step(m, relay.now()) from relay.migration m where m.relay_host_id = host and m.completed_at is null and m.aborted_at is null
$$;
create function pg_temp.fence(cell text) returns text language plpgsql as $$
declare
  v uuid;
begin
  update relay.cell c set admission = 'existing-only' where c.cell_id = cell;
  update relay.cell_runtime r set heard_at = relay.now() - interval '45 s' where r.cell_id = cell;
  v := (relay_v1.fence_begin(cell, pg_temp.inc(), 'op ' || cell, 'gone')).attempt_id;
  return relay_v1.fence_start(v) || ' ' || relay_v1.fence_commit(v);
end $$;
create function pg_temp.evacuate(source text default 'x', target text default 'y', n int default 100) returns text language sql as $$
  select concat_ws(' ', r.outcome, r.moved, r.remaining) from relay_v1.evacuate_cell(source, target, n) r
$$;
create function pg_temp.supersede(source text default 'x', dead text default 'y', replacement text default 'w', n int default 100) returns text language sql as $$
  select concat_ws(' ', r.outcome, r.moved, r.remaining) from relay_v1.supersede_target(source, dead, replacement, n) r
$$;
create function pg_temp.moved(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', c.from_cell, c.to_cell, c.epoch, c.rule, c.detail ->> 'forced'), ', ' order by c.id)
  from relay.change c where c.relay_host_id = host and c.kind = 'moved'
$$;
create function pg_temp.last_audit() returns text language sql as $$
  select concat_ws(' ', a.function, a.outcome) from relay.audit a order by a.id desc limit 1
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'here', 100) from unnest(array['x', 'y', 'w', 'small', 'silent']) n;
update relay.cell c set capacity_units = 2 where c.cell_id = 'small';
select pg_temp.beat(n) from unnest(array['x', 'y', 'w', 'small']) n;

-- 1 overtaken
select pg_temp.moving('r1');
update relay.assignment a set cell_id = 'w', epoch = 6 where a.relay_host_id = 'r1';
select is(pg_temp.step('r1'), 'overtaken', '1 a row with another cell');
update relay.assignment a set cell_id = 'y', epoch = 7 where a.relay_host_id = 'r1';
select is(pg_temp.step('r1'), 'overtaken', '1 or another epoch');
select is(relay_v1.sweep_migrations(), 1, '1 ends the migration');
select is(array[pg_temp.migration('r1'), pg_temp.home('r1')], array['x y 5 aborted', 'y 7'], '1 and nothing else');
select is(pg_temp.told('r1'), 'x y 5 aborted', '1 which is told');
-- 2 register: a mark that an activation could not leave
select pg_temp.moving('r2', target => 'active');
select is(pg_temp.step('r2'), 'register', '2 seated on the target, and not marked');
select is(relay_v1.sweep_migrations(), 0, '2 ends nothing');
select is(pg_temp.migration('r2'), 'x y 5 registered', '2 but marks it');
-- 3 complete
select is(pg_temp.step('r2'), 'wait', '3 not while the source has its seat');
select test_clock.advance('59.999 s');
update relay.lease l set expires_at = relay.now() + interval '1 hour' where l.relay_host_id = 'r2' and l.cell_id = 'y';
select pg_temp.beat(n) from unnest(array['x', 'y', 'w', 'small']) n;
select is(pg_temp.step('r2'), 'wait', '3 not until it expires');
select test_clock.advance('1 ms');
select is(pg_temp.step('r2'), 'complete', '3 then');
select is(relay_v1.sweep_migrations(), 1, '3 it is complete');
select is(pg_temp.migration('r2'), 'x y 5 registered completed', '3 and marked so');
select pg_temp.moving('r3', registered => true, target => 'active');
update relay.cell_runtime r set incarnation = pg_temp.inc(2) where r.cell_id = 'x';
select is(pg_temp.step('r3'), 'complete', '3 another process on the source: the seat there is gone');
update relay.cell_runtime r set incarnation = pg_temp.inc(1) where r.cell_id = 'x';
select is(pg_temp.step('r3'), 'wait', '3 the same process: it is not');
savepoint fenced;
select pg_temp.fence('x');
select is(pg_temp.step('r3'), 'complete', '3 a fenced source has no seats');
rollback to fenced;
-- 4 wait
select pg_temp.moving('r4', source => 'none', age => '14 min 59.999 s');
select is(pg_temp.step('r4'), 'wait', '4 less than 15 min old');
select pg_temp.moving('r4-pinned', source => 'none', pinned => true, age => '23 hours 59 min 59.999 s');
select is(pg_temp.step('r4-pinned'), 'wait', '4 pinned, less than 24 h old');
select pg_temp.moving('r4-registered', source => 'none', registered => true, age => '23 hours 59 min 59.999 s');
select is(pg_temp.step('r4-registered'), 'wait', '4 registered, less than 24 h old');
savepoint fenced;
select pg_temp.fence('x');
select is(pg_temp.step('r4'), 'wait', '4 a fenced source does not hurry a young one');
select is(pg_temp.step('r4-pinned'), 'give-up', '4 but an old one, pinned');
select is(pg_temp.step('r4-registered'), 'complete', '4 or registered');
rollback to fenced;
select is(relay_v1.sweep_migrations(), 0, '4 nothing to do');
-- 5 wait
select pg_temp.moving('r5-granted', source => 'none', target => 'granted', age => '15 min');
select is(pg_temp.step('r5-granted'), 'wait', '5 a fresh grant: it may be on its way');
select pg_temp.moving('r5-source', age => '15 min');
select is(pg_temp.step('r5-source'), 'wait', '5 still seated on the source');
select pg_temp.moving('r5-both', pinned => true, registered => true, target => 'active', age => '24 hours');
select is(pg_temp.step('r5-both'), 'wait', '5 seated on both');
-- 6 complete
select test_clock.advance('1 ms');
select is(pg_temp.step('r4-registered'), 'complete', '6 registered once, 24 h old, nothing held');
-- 7 roll-back, 8 give-up
select is(pg_temp.step('r4'), 'roll-back', '7 15 min old, never registered, nothing held');
select is(pg_temp.step('r4-pinned'), 'roll-back', '7 24 h old and pinned');
update relay.cell c set admission = 'migration-only' where c.cell_id = 'x';
select is(pg_temp.step('r4'), 'give-up', '8 not to a source that takes no hosts');
update relay.cell c set admission = 'general', drain_incarnation = pg_temp.inc(), drain_grace_ms = 0, drain_pace_ms = 0 where c.cell_id = 'x';
select is(pg_temp.step('r4'), 'give-up', '8 that drains');
update relay.cell c set drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null, admit_mode = 'reserve' where c.cell_id = 'x';
select is(pg_temp.step('r4'), 'give-up', '8 that is in reserve mode');
update relay.cell c set admit_mode = 'db' where c.cell_id = 'x';
update relay.cell_runtime r set heard_at = relay.now() - interval '45 s' where r.cell_id = 'x';
select is(pg_temp.step('r4'), 'give-up', '8 that is silent');
update relay.cell_runtime r set heard_at = relay.now(), ready = false where r.cell_id = 'x';
select is(pg_temp.step('r4'), 'give-up', '8 or not ready');
update relay.cell_runtime r set ready = true where r.cell_id = 'x';
select is(relay_v1.sweep_migrations(max_rows => 1), 1, 'a sweep is limited');
select is(relay_v1.sweep_migrations(), 2, 'and does the rest');
select is(array[pg_temp.home('r4'), pg_temp.home('r4-pinned'), pg_temp.home('r4-registered')], array['x 6', 'x 6', 'y 5'], '7 taken back, at a new epoch');
select is(array[pg_temp.migration('r4'), pg_temp.migration('r4-registered')], array['x y 5 aborted', 'x y 5 registered completed'], '6, 7 and ended');
select is(pg_temp.moved('r4'), 'y x 6 rolled-back true', '7 which is a move');
select is(pg_temp.leases('r4'), null, '7 without a lease: the host asks');
select test_clock.advance('60 s');
select pg_temp.beat(n) from unnest(array['x', 'y', 'w', 'small']) n;
update relay.cell c set admission = 'migration-only' where c.cell_id = 'x';
select is(relay_v1.sweep_migrations(), 3, 'later: r5-both completes, r5-granted and r5-source are given up');
select is(array[pg_temp.home('r5-source'), pg_temp.migration('r5-source')], array['y 5', 'x y 5 aborted'], '8 given up: the host stays where its row is');
select is(array[pg_temp.migration('r3'), pg_temp.migration('r5-both')], array['x y 5 registered', 'x y 5 pinned registered completed'], '6 complete; 4 a younger one waits');
-- an epoch that cannot be minted yet
select pg_temp.moving('late', source => 'none', age => '15 min');
update relay.cell c set admission = 'general' where c.cell_id = 'x';
update relay.setting s set timeline = s.timeline + 1;
select is(relay_v1.sweep_migrations(), 0, 'after a failover a roll-back waits for a heartbeat');
select is(pg_temp.home('late'), 'y 5', 'indeed');
update relay.setting s set timeline = relay.timeline();
select is(relay_v1.sweep_migrations(), 1, 'and then it is made');
select test_clock.advance('7 days -15 min');
select is(relay_v1.sweep_migrations(), 1, '6 r3 completes,');
select is((select count(*)::int from relay.migration m where m.relay_host_id = 'late'), 1, 'what ended is kept for 7 d');
select test_clock.advance('15 min');
select relay_v1.sweep_migrations();
select is((select count(*)::int from relay.migration), 0, 'and then deleted');
select pg_temp.moving('old', registered => true, target => 'active', age => '8 days');
select is(relay_v1.sweep_migrations(), 0, 'what is open is not done,');
select is(pg_temp.migration('old'), 'x y 5 registered', 'however old it is, and stays');
delete from relay.migration;
truncate relay.lease;

-- evacuate_cell: refusals
select pg_temp.beat(n) from unnest(array['x', 'y', 'w', 'small']) n;
update relay.cell c set admission = 'general' where c.cell_id = 'x';
select is(pg_temp.evacuate('x', 'x'), 'target_matches_source 0', 'to itself');
select is(pg_temp.evacuate('nowhere'), 'cell_not_found 0', 'from no cell');
select is(pg_temp.evacuate(), 'drain_attempt_admission_enabled 0', 'from a general one: it would fill again');
select is(pg_temp.last_audit(), 'evacuate_cell drain_attempt_admission_enabled', 'which is audited');
update relay.cell c set admission = 'migration-only' where c.cell_id = 'x';
select is(pg_temp.evacuate('x', 'nowhere'), 'cell_not_found 0', 'to no cell');
select is(pg_temp.evacuate('x', 'silent'), 'target_cell_unavailable 0', 'to a silent one');
update relay.cell c set admit_mode = 'reserve' where c.cell_id = 'y';
select is(pg_temp.evacuate(), 'cell_in_reserve_mode 0', 'to one in reserve mode');
update relay.cell c set admit_mode = 'db', admission = 'existing-only' where c.cell_id = 'y';
select is(pg_temp.evacuate(), 'target_cell_unavailable 0', 'to one that is being emptied');
update relay.cell c set admission = 'general', drain_incarnation = pg_temp.inc(), drain_grace_ms = 0, drain_pace_ms = 0 where c.cell_id = 'y';
select is(pg_temp.evacuate(), 'target_cell_unavailable 0', 'or drained');
update relay.cell c set drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null where c.cell_id = 'y';
update relay.cell c set admit_mode = 'reserve' where c.cell_id = 'x';
select is(pg_temp.evacuate(), 'cell_in_reserve_mode 0', 'from one in reserve mode');
update relay.cell c set admit_mode = 'db' where c.cell_id = 'x';
select pg_temp.beat('x', ready => false);
select is(pg_temp.evacuate(), 'source_cell_unavailable 0', 'from one that is not live');
select pg_temp.beat('x'), pg_temp.beat('small', more => '{"enforced_units": 2}');
select is(pg_temp.evacuate('x', 'small'), 'relay_connection_headroom_exhausted 0', 'to one without room');
select pg_temp.beat('small');
set session authorization relay_director;
select set_config('test.answers', concat_ws(' ', (relay_v1.evacuate_cell('x', 'y')).outcome, (relay_v1.supersede_target('x', 'y', 'w')).outcome,
  relay_v1.migration_status('x') ->> 'outcome'), true);
reset session authorization;
select is(current_setting('test.answers'), 'forbidden forbidden forbidden', 'who is no operator moves nobody (F10)');
select is((select string_agg(a.function, ' ' order by a.id) from relay.audit a where a.outcome = 'forbidden'), 'evacuate_cell supersede_target migration_status', 'and leaves audit rows');

select throws_ok($$ select relay_v1.evacuate_cell('x', 'y', 0) $$, 'RL001', null, 'no host at a time is a misuse');
select throws_ok($$ select relay_v1.evacuate_cell('x', 'y', 1001) $$, 'RL001', null, 'and too many: their target is latched');
select throws_ok($$ select relay_v1.supersede_target('x', 'y', 'w', null) $$, 'RL001', null, 'of a dead target too');

-- evacuate_cell (S19): four hosts rolled back to x above have no lease; these have
update relay.assignment a set cell_id = 'w', epoch = a.epoch + 1 where a.cell_id in ('x', 'y');
select pg_temp.seat('e1'), pg_temp.seat('e2'), pg_temp.seat('e3'), pg_temp.seat('promised', state => 'granted'), pg_temp.seat('offline', state => 'none');
select is(pg_temp.evacuate(n => 1), 'ok 1 4', 'a call is limited');
select is(array[pg_temp.home('e1'), pg_temp.leases('e1'), pg_temp.migration('e1')], array['y 5', 'x retiring 4, y granted 5', 'x y 5'],
  'S19 the row names the target first, the source still has the host; not pinned without a drain');
select is(pg_temp.moved('e1'), 'x y 5 evacuated false', 'S19 which is a move that is not forced');
select is((select l.retire_until from relay.lease l where l.relay_host_id = 'e1' and l.state = 'retiring'), relay.now() + interval '60 s', 'S19 with a grace of 60 s');
select is(relay_v1.start_drain('x', 120000, 0), 'ok', 'the source drains');
select is(pg_temp.migration('e1'), 'x y 5 pinned', 'which pins what is open');
update relay.cell c set capacity_units = 1 where c.cell_id = 'small';
select is(pg_temp.evacuate('x', 'small'), 'ok 2 2', 'as many as there is room for, and who holds nothing; not who was promised a seat');
select is(array[pg_temp.home('e3'), pg_temp.leases('e3')], array['x 4', 'x active 4'], 'who finds no room stays');
update relay.cell c set capacity_units = 2 where c.cell_id = 'small';
select is(pg_temp.evacuate('x', 'small'), 'ok 1 1', 'until there is');
select is(array[pg_temp.home('e2'), pg_temp.home('e3'), pg_temp.home('offline'), pg_temp.home('promised')], array['small 5', 'small 5', 'small 5', 'x 4'], 'where they are');
select is(pg_temp.migration('e2'), 'x small 5 pinned', 'pinned, since the source drains');
select is((select l.retire_until from relay.lease l where l.relay_host_id = 'e2' and l.state = 'retiring'), relay.now() + interval '120 s', 'with the grace of the drain');
select is(array[pg_temp.migration('offline'), pg_temp.leases('offline'), pg_temp.moved('offline')], array[null, null, 'x small 5 evacuated true'], 'a host that holds nothing only gets another row');
select is(pg_temp.activate('e1', 'y', 5), 'active', 'S19 it attaches on the target');
select is(pg_temp.migration('e1'), 'x y 5 pinned registered', 'S19 the source is not done with it');
select is(pg_temp.release('e1', 'x', 4), 'released', 'S19 drained (4503)');
select is(pg_temp.migration('e1'), 'x y 5 pinned registered completed', 'S19 complete, at epoch + 1');
select is(relay_v1.migration_status('x') - 'oldest_opened_at', '{"outcome": "ok", "open": 2, "pinned": 2, "registered": 0, "expired": 0, "completed": 1, "aborted": 0, "hosts_on_source": 1}', 'migration_status');
select is(relay_v1.migration_status('x', 'y') - 'oldest_opened_at', '{"outcome": "ok", "open": 0, "pinned": 0, "registered": 0, "expired": 0, "completed": 1, "aborted": 0, "hosts_on_source": 1}', 'of one target');
select is(relay_v1.migration_status('nowhere'), '{"outcome": "cell_not_found"}', 'of no cell');
update relay.assignment a set cell_id = 'x', epoch = 6 where a.relay_host_id = 'e2';
update relay.migration m set target_cell = 'x', source_cell = 'y', epoch = 6 where m.relay_host_id = 'e2';
select is(pg_temp.evacuate(), 'ok 0 2', 'a host that is not done with one migration is not moved again');
update relay.migration m set target_cell = 'small', source_cell = 'x', epoch = 7 where m.relay_host_id = 'e2';
update relay.assignment a set cell_id = 'small', epoch = 7 where a.relay_host_id = 'e2';

-- supersede_target
select is(pg_temp.supersede('x', 'nowhere'), 'cell_not_found 0', 'no such dead target');
select is(pg_temp.supersede('x', 'small', 'x'), 'target_matches_source 0', 'not to the source');
select is(pg_temp.supersede('x', 'small', 'small'), 'target_matches_source 0', 'nor to the dead one');
select is(pg_temp.supersede('x', 'small'), 'cell_fence_admission_enabled 0', 'it still takes hosts');
update relay.cell c set admission = 'existing-only' where c.cell_id = 'small';
select is(pg_temp.supersede('x', 'small'), 'cell_fence_attestation_missing 0', 'it is not fenced');
select is(pg_temp.fence('small'), 'ok ok', 'fenced');
select is(pg_temp.supersede('x', 'small', 'silent'), 'target_cell_unavailable 0', 'the replacement is silent');
select is(pg_temp.supersede('x', 'small', n => 1), 'ok 1 1', 'a call is limited');
select is(pg_temp.last_audit(), 'supersede_target ok', 'and audited');
select is(pg_temp.supersede('x', 'small'), 'ok 1 0', 'the rest');
select is(array[pg_temp.home('e3'), pg_temp.leases('e3'), pg_temp.migration('e3')], array['w 6', 'w granted 6, x retiring 4', 'x small 5 pinned aborted, x w 6 pinned'],
  'the host is tied to the replacement at a new epoch; the source keeps what it had');
select is((select array[m.source_incarnation::text, m.pinned_at::text] from relay.migration m where m.relay_host_id = 'e3' and m.epoch = 6),
  (select array[m.source_incarnation::text, m.pinned_at::text] from relay.migration m where m.relay_host_id = 'e3' and m.epoch = 5), 'pin and process are carried over');
select is(pg_temp.moved('e3'), 'x small 5 evacuated false, small w 6 superseded true', 'and the moves are told');
select * from finish();
