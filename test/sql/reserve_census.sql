-- What every function of relay_v1 does about a cell in reserve mode. One that is new must be put in here, with a call.
-- answers: as for any cell, or by the mode itself; skips: leaves hosts of a reserve cell where they are; refuses: says that
-- the mode is in the way.
\ir helpers/fleet.sql
select plan(61);

create function pg_temp.inc(n int default 1) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
create function pg_temp.h(name text) returns text language sql as $$ select rpad(name, 43, '_') $$;
create function pg_temp.json(variadic parts text[]) returns jsonb language sql as $$
  select jsonb_build_array(jsonb_build_object('user_id', 'user', 'relay_host_id', parts[1], 'epoch', parts[2]::bigint, 'cell_id', 'r',
    'generation', 1, 'units', 1, 'inclusion_watermark', 1))
$$;
-- What a call answers, and what a look afterwards finds; all of it is taken back.
create function pg_temp.try(call text, look text) returns text language plpgsql as $$
declare v_answer text; v_found text;
begin
  execute call into v_answer;
  if look is not null then
    execute look into v_found;
  end if;
  raise exception sqlstate 'ZZ001' using message = coalesce(v_answer, 'null') || coalesce(' | ' || v_found, '');
exception when sqlstate 'ZZ001' then
  return sqlerrm;
end $$;

select test_clock.freeze('2030-01-01 00:00:00+00');
-- r: reserve and live; d: reserve, being emptied, silent; y: db; z: db, fenced
select relay_v1.register_cell(n, 'https://' || n, n, 100, 1000, 10) from unnest(array['r', 'd', 'y', 'z']) n;
select pg_temp.beat(n) from unnest(array['r', 'd', 'y', 'z']) n;
select relay_v1.set_admit_mode(n, 'reserve'), relay_v1.set_cell_flags(n, '{"admitMode": "reserve"}', 0),
  relay_v1.record_effective_mode(n, pg_temp.inc(), 'reserve') from unnest(array['r', 'd']) n;
select pg_temp.live_on(75, 'r', 'y');
select relay_v1.set_admission(n, 'existing-only') from unnest(array['d', 'z']) n;
select pg_temp.fence('z');
select relay_v1.fence_start((select f.attempt_id from relay_v1.fence_begin('d', pg_temp.inc(), 'op', 'gone') f));
-- seated from memory on r; one whose lease of former days has expired; one on the silent cell
select pg_temp.seat('seated', 'r'), pg_temp.seat('late', 'r'), pg_temp.seat('silent', 'd');
select pg_temp.hold('late', 'r', life => '-1 s');
-- a migration whose time is over, off a cell that is in reserve mode by now
select pg_temp.seat('gone', 'y', 5), pg_temp.migrate('gone', 'r', 'y', 5, false);
update relay.migration set opened_at = relay.now() - interval '20 min', expires_at = relay.now() - interval '5 min';
insert into relay.device (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at, installed_at)
values ('user', 'seated', 'phone', pg_temp.h('token'), 1, relay.now() + interval '1 day', relay.now());

create temp table census (fn text, class text, call text, look text, says text);
insert into census values
-- director
('assign', 'answers', $$ relay_v1.assign('user', 'seated', epoch_floor => 4) r $$, 'select count(*) from relay.change c where c.relay_host_id = ''seated''', 'granted reserve-pin r 4 | 0'),
('assign', 'answers', $$ relay_v1.assign('user', 'seated', epoch_floor => 6, requested_by => 'resolve') r $$, null, 'unavailable behind'),
('assign', 'refuses', $$ relay_v1.assign('user', 'new', epoch_floor => 0, preferred_region => 'r') r $$, null, 'granted new y 1'),
('resolve', 'answers', $$ relay_v1.resolve('seated', pg_temp.h('token'), 'resume') r $$, null, 'seated r 4'),
('explain_assign', 'answers', $$ select relay_v1.explain_assign('user', 'seated') ->> 'rule' $$, null, 'reserve-pin'),
('simulate_outage', 'answers', $$ select string_agg(s.relay_host_id || ' ' || s.rule, ', ' order by s.relay_host_id) from relay_v1.simulate_outage(array['r']) s $$, null, 'late home-unavailable, seated home-unavailable'),
('regions', 'answers', $$ select string_agg(g.region, ' ') from relay_v1.regions() g $$, null, 'r y'),
('cells', 'answers', $$ select string_agg(c.cell_id || ' ' || c.admit_mode, ', ') from relay_v1.cells() c $$, null, 'd reserve, r reserve, y db, z db'),
('changes_since', 'answers', $$ select relay_v1.changes_since(null, 'r') ->> 'resync' $$, null, 'start'),
('epoch_base', 'answers', $$ select relay_v1.epoch_base() $$, null, '0'),
('host_row', 'answers', $$ select concat_ws(' ', h.cell_id, h.epoch, h.admit_mode) from relay_v1.host_row('seated', 'user') h $$, null, 'r 4 reserve'),
('record_seats', 'answers', $$ select concat_ws(' ', s.result, s.cell_id, s.epoch) from relay_v1.record_seats(pg_temp.json('seated', '6')) s $$, null, 'recorded r 6'),
('sweep_leases', 'answers', $$ select relay_v1.sweep_leases() $$, 'select pg_temp.home(''late'')', '1 | r 4'),
('sweep_dead_cells', 'skips', $$ select relay_v1.sweep_dead_cells() $$, 'select pg_temp.home(''silent'')', '0 | d 4'),
('sweep_migrations', 'skips', $$ select relay_v1.sweep_migrations() $$, 'select pg_temp.home(''gone'')', '1 | y 5'),
('sweep_changes', 'answers', $$ select relay_v1.sweep_changes() $$, null, '0'),
('sweep_credentials', 'answers', $$ select relay_v1.sweep_credentials() $$, 'select count(*) from relay.device', '0 | 1'),
-- cell
('heartbeat', 'answers', $$ select pg_temp.beat('r') $$, null, 'ok'),
('verify_seat', 'answers', $$ select relay_v1.verify_seat('user', 'seated', 'r', 4) $$, null, 'true'),
('activate_control', 'answers', $$ select c.outcome from relay_v1.activate_control('user', 'seated', 'r', pg_temp.inc(), 4, 1, 1) c $$, 'select pg_temp.leases(''seated'')', 'active | r active 4'),
('renew_leases', 'answers', $$ select n.outcome from relay_v1.renew_leases('r', pg_temp.inc(), pg_temp.json('late', '4')) n $$, null, 'renewed'),
('release_lease', 'answers', $$ select relay_v1.release_lease('user', 'late', 'r', pg_temp.inc(), 4, 1, 'signed-out') $$, 'select pg_temp.home(''late'')', 'released | r 4'),
('release_lease', 'answers', $$ select relay_v1.release_lease('user', 'seated', 'r', pg_temp.inc(), 4, 1, 'signed-out') $$, 'select a.last_close_reason from relay.assignment a where a.relay_host_id = ''seated''', 'not_held | signed-out'),
('reregister_controls', 'answers', $$ select n.outcome from relay_v1.reregister_controls('r', pg_temp.inc(), pg_temp.json('seated', '4')) n $$, 'select pg_temp.leases(''seated'')', 'active | r active 4'),
('cell_orders', 'answers', $$ select concat_ws(' ', o.admit_mode, o.flags) from relay_v1.cell_orders('r', pg_temp.inc()) o $$, null, 'reserve {"admitMode": "reserve"}'),
('record_effective_mode', 'answers', $$ select relay_v1.record_effective_mode('r', pg_temp.inc(), 'db', 3) $$, 'select t.holds_slot from relay_v1.trip_slots t where t.cell_id = ''r''', 'ok | true'),
('claim_trip_slot', 'answers', $$ select relay_v1.claim_trip_slot('r', pg_temp.inc(), 1) $$, 'select t.holds_slot from relay_v1.trip_slots t where t.cell_id = ''r''', 'granted | true'),
('open_connection', 'answers', $$ select concat_ws(' ', o.outcome, o.epoch) from relay_v1.open_connection('r', pg_temp.inc(), 'seated', pg_temp.h('token'), 'conn', '[{"user_id": "user", "epoch": 7}]') o $$, null, 'opened 7'),
('create_invite', 'answers', $$ select i.outcome from relay_v1.create_invite('user', 'seated', 'r', pg_temp.inc(), 'tablet', pg_temp.h('invite')) i $$, null, 'created'),
('release_invite', 'answers', $$ select relay_v1.release_invite('r', pg_temp.inc(), 'seated', pg_temp.h('invite'), 'conn') $$, null, 'not_reserved'),
('install_credential', 'answers', $$ select i.outcome from relay_v1.install_credential('user', 'seated', 'r', pg_temp.inc(), 'req', 'phone', pg_temp.h('next'), 'authenticated-direct', pg_temp.h('token'), direct_auth_id => 'direct') i $$, null, 'committed'),
('install_status', 'answers', $$ select i.outcome from relay_v1.install_status('user', 'seated', 'phone', 'req') i $$, null, 'not_found'),
('confirm_resume', 'answers', $$ select c.outcome from relay_v1.confirm_resume('user', 'seated', 'r', pg_temp.inc(), 'req', 'conn', '{"relay_device_id": "phone", "credential_version": 1}') c $$, null, 'confirmed'),
('revoke_device', 'answers', $$ select relay_v1.revoke_device('user', 'seated', 'r', pg_temp.inc(), 'phone') $$, null, 'revoked'),
-- operator
('schema_version', 'answers', $$ select relay_v1.schema_version() > 0 $$, null, 'true'),
('register_cell', 'answers', $$ select relay_v1.register_cell('r', 'https://r', 'r', 100, 1000, 20) $$, 'select c.admit_mode from relay.cell c where c.cell_id = ''r''', 'ok | reserve'),
('connection_budget', 'answers', $$ select b.cells from relay_v1.connection_budget(listeners_per_cell => 0, cell_pools => '{"r": {"pool": 16, "peak": 12}, "z": 5, "y": 7}') b $$, null, '33'),
('set_admission', 'answers', $$ select relay_v1.set_admission('r', 'migration-only') $$, null, 'ok'),
('isolate_for_roll', 'answers', $$ select relay_v1.isolate_for_roll('r') $$, 'select concat_ws('' '', r.rule, r.cell_id) from relay_v1.assign(''user'', ''seated'', epoch_floor => 4) r', 'ok | roll-isolated y'),
('restore_after_roll', 'answers', $$ select relay_v1.restore_after_roll('r') $$, null, 'cell_not_isolated'),
('set_admit_mode', 'answers', $$ select relay_v1.set_admit_mode('r', 'db') $$, null, 'cell_flags_admit_reserve'),
('set_cell_flags', 'answers', $$ select relay_v1.set_cell_flags('r', '{"admitMode": "db"}', 1) $$, 'select relay_v1.set_admit_mode(''r'', ''db'')', 'ok | cell_admits_reserve'),
('start_drain', 'refuses', $$ select relay_v1.start_drain('r') $$, null, 'cell_in_reserve_mode'),
('start_drain', 'answers', $$ select relay_v1.isolate_for_roll('r') $$, 'select relay_v1.start_drain(''r'')', 'ok | ok'),
('cancel_drain', 'answers', $$ select relay_v1.cancel_drain('r') $$, null, 'drain_attempt_not_found'),
('evacuate_cell', 'refuses', $$ select e.outcome from relay_v1.evacuate_cell('r', 'y') e $$, null, 'cell_in_reserve_mode'),
('evacuate_cell', 'refuses', $$ select relay_v1.set_admission('y', 'migration-only') $$, 'select e.outcome from relay_v1.evacuate_cell(''y'', ''r'') e', 'ok | cell_in_reserve_mode'),
('supersede_target', 'refuses', $$ select s.outcome from relay_v1.supersede_target('y', 'z', 'r') s $$, null, 'cell_in_reserve_mode'),
('migration_status', 'answers', $$ select relay_v1.migration_status('r') ->> 'open' $$, null, '1'),
('retire_cell', 'refuses', $$ select relay_v1.set_admission('r', 'existing-only') $$, 'select relay_v1.retire_cell(''r'')', 'ok | cell_in_reserve_mode'),
('fence_begin', 'answers', $$ select f.outcome from relay_v1.fence_begin('r', pg_temp.inc(), 'op', 'gone') f $$, null, 'cell_fence_admission_enabled'),
('fence_start', 'answers', $$ select relay_v1.fence_start((select t.attempt_id from relay.fence_attempt t where t.cell_id = 'd')) $$, null, 'ok'),
('fence_abort', 'answers', $$ select relay_v1.fence_abort((select t.attempt_id from relay.fence_attempt t where t.cell_id = 'd'), 'mistaken') $$, null, 'cell_fence_apply_may_have_started'),
('fence_commit', 'answers', $$ select relay_v1.fence_commit((select t.attempt_id from relay.fence_attempt t where t.cell_id = 'd')) $$, 'select concat_ws('' '', relay_v1.sweep_dead_cells(), ''moved'')', 'ok | 1 moved'),
('fence_release', 'answers', $$ select relay_v1.fence_commit((select t.attempt_id from relay.fence_attempt t where t.cell_id = 'd')) $$, 'select relay_v1.fence_release(''d'')', 'ok | ok'),
('fence_status', 'answers', $$ select relay_v1.fence_status('d') ->> 'outcome' $$, null, 'ok');
-- an assign and a resolve in one line
update census set call = 'select concat_ws('' '', r.outcome, to_jsonb(r) ->> ''rule'', r.cell_id, r.epoch) from ' || call where fn in ('assign', 'resolve');

select is(pg_temp.try(c.call, c.look), c.says, concat_ws(' ', c.fn, c.class)) from census c;

select set_eq('select distinct fn from census',
  $$ select p.proname::text from pg_proc p where p.pronamespace = 'relay_v1'::regnamespace $$, 'every function of relay_v1 is in the census, and none that is gone');
select is((select string_agg(c.fn, ' ') from census c where concat(c.call, c.look) !~ ('relay_v1\.' || c.fn || '\(') and c.fn <> 'heartbeat'), null, 'each is called');
select is((select string_agg(distinct c.class, ' ' order by c.class) from census c), 'answers refuses skips', 'each is one of three');
select is((select string_agg(distinct c.fn, ' ' order by c.fn) from census c where c.class = 'refuses'), 'assign evacuate_cell retire_cell start_drain supersede_target', 'these refuse');
select is((select string_agg(distinct c.fn, ' ' order by c.fn) from census c where c.class = 'skips'), 'sweep_dead_cells sweep_migrations', 'these skip');
select * from finish();
