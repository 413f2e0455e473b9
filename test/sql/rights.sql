-- Roles, rights and comments (02, roles): nobody but the owner touches schema relay; what a DBA sees explains itself.
select plan(26);

create function pg_temp.callable(role text) returns text language sql as $$
  select string_agg(p.proname, ' ' order by p.proname)
  from pg_proc p
  where p.pronamespace = 'relay_v1'::regnamespace and has_function_privilege(role, p.oid, 'execute')
$$;
-- Who is no operator may call an operator function: it answers forbidden, and leaves an audit row.
create function pg_temp.callable_by_all() returns text language sql as $$
  select string_agg(p.proname, ' ' order by p.proname)
  from pg_proc p
  where p.pronamespace = 'relay_v1'::regnamespace
    and (select bool_and(has_function_privilege(r, p.oid, 'execute')) from unnest(array['relay_director', 'relay_cell', 'relay_operator', 'relay_monitor']) r)
$$;
create function pg_temp.own_of(role text) returns text language sql as $$
  select string_agg(f, ' ' order by f) from string_to_table(pg_temp.callable(role), ' ') f
  where f not in (select string_to_table(pg_temp.callable_by_all(), ' '))
$$;
select is(pg_temp.callable_by_all(), 'cancel_drain evacuate_cell explain_assign fence_abort fence_begin fence_commit fence_release fence_start fence_status isolate_for_roll migration_status register_cell restore_after_roll retire_cell schema_version set_admission set_admit_mode set_cell_flags start_drain supersede_target', 'every role calls');
select is(pg_temp.own_of('relay_director'), 'assign cells changes_since epoch_base host_row record_seats regions resolve sweep_changes sweep_credentials sweep_dead_cells sweep_leases sweep_migrations', 'a director calls besides');
select is(pg_temp.own_of('relay_cell'), 'activate_control cell_orders changes_since claim_trip_slot confirm_resume create_invite heartbeat install_credential install_status open_connection record_effective_mode release_invite release_lease renew_leases reregister_controls revoke_device verify_seat', 'a cell calls besides');
select is(pg_temp.own_of('relay_operator'), 'connection_budget simulate_outage', 'an operator calls besides');
select is(pg_temp.own_of('relay_monitor'), 'connection_budget simulate_outage', 'the monitor calls besides');
select is(pg_temp.callable('public'), null, 'and everybody nothing');

select is((select bool_or(has_schema_privilege(r, 'relay', 'usage')) from unnest(array['relay_director', 'relay_cell', 'relay_operator', 'relay_monitor']) r), false, 'no role sees schema relay');
select is((select string_agg(c.relname, ' ') from pg_class c, unnest(array['relay_director', 'relay_cell', 'relay_operator', 'relay_monitor']) r
  where c.relnamespace = 'relay'::regnamespace and c.relkind in ('r', 'v') and has_table_privilege(r, c.oid, 'select, insert, update, delete, truncate')), null, 'nor reads or writes a table of it');
select is((select string_agg(distinct p.proname, ' ' order by p.proname) from pg_proc p, unnest(array['relay_director', 'relay_cell', 'relay_operator', 'relay_monitor']) r
  where p.pronamespace = 'relay'::regnamespace and has_function_privilege(r, p.oid, 'execute')), 'drains_rows fences_rows fleet_rows hosts_by_cell_rows modes_rows open_migrations_rows recent_changes_rows trip_slots_rows', 'nor calls a function of it, but for the views');

set session authorization relay_monitor;
select set_config('test.fleet', (select count(*)::text from relay_v1.fleet) || (select count(*) from relay_v1.hosts_by_cell), true);
reset session authorization;
select is(current_setting('test.fleet'), '00', 'the monitor reads the views');

select is((select string_agg(r.rolname, ' ' order by r.rolname) from pg_roles r where r.rolname like 'relay\_%'
  and r.rolconfig @> array['statement_timeout=5s', 'idle_in_transaction_session_timeout=5s']), 'relay_cell relay_director relay_monitor relay_operator', 'the roles have timeouts');
select is((select bool_or(r.rolsuper or r.rolcreaterole or r.rolcreatedb or r.rolbypassrls) from pg_roles r where r.rolname like 'relay\_%'), false, 'and no power besides');

-- functions
create temp view own as select p.*, n.nspname from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname in ('relay', 'relay_v1');
select is((select string_agg(p.proname, ' ') from (select o.proname from own o group by o.nspname, o.proname having count(*) > 1) p), null, 'no function is overloaded');
select is((select string_agg(o.proname, ' ') from own o where o.nspname = 'relay_v1' and not o.prosecdef), null, 'public functions run as the owner');
select is((select string_agg(o.proname, ' ') from own o where o.prosecdef and (o.proconfig @> array['search_path=relay, pg_temp']) is not true and o.proname <> 'now'), null, 'with their own search path');
select is((select string_agg(o.proname, ' ') from own o where o.nspname = 'relay_v1' and obj_description(o.oid, 'pg_proc') is null), null, 'and each says what it is for');

-- tables
create temp view tab as select c.* from pg_class c where c.relnamespace in ('relay'::regnamespace, 'relay_v1'::regnamespace);
select is((select string_agg(t.relname, ' ') from tab t where t.relkind in ('r', 'v', 'c')
  and case t.relkind when 'c' then obj_description(t.reltype, 'pg_type') else obj_description(t.oid, 'pg_class') end is null), null, 'every table, view and type has a comment');
select is((select string_agg(t.relname || '.' || a.attname, ' ') from tab t join pg_attribute a on a.attrelid = t.oid
  where t.relkind = 'r' and a.attnum > 0 and not a.attisdropped and col_description(t.oid, a.attnum) is null), null, 'and every column');
select is((select string_agg(k.conname, ' ') from pg_constraint k join tab t on t.oid = k.conrelid where k.contype = 'c' and k.conname ~ '_check\d*$'), null, 'every CHECK has a name of its own');
select is((select string_agg(k.conname, ' ') from pg_constraint k join tab t on t.oid = k.conrelid
  where k.contype = 'f' and k.confrelid = 'relay.cell'::regclass), null, 'nothing refers to a cell: that would lock its row');
select is((select string_agg(t.relname, ' ' order by t.relname) from tab t where t.relkind = 'r' and (t.reloptions @> array['fillfactor=80']) is not true
  and t.relname in ('cell', 'cell_runtime', 'assignment', 'lease', 'migration', 'fence_attempt', 'fence', 'mutation_lease', 'setting')), null, 'rows that are updated have room for it');
select is((select string_agg(i.indexrelid::regclass::text, ' ') from pg_index i
  join pg_attribute a on a.attrelid = i.indexrelid where i.indrelid = 'relay.lease'::regclass and a.attname in ('expires_at', 'units', 'state', 'retire_until')), null, 'no index on a lease holds what a renewal writes');

-- a renewal stays on its page and touches no index
select relay_v1.register_cell('hot', 'https://hot', 'here', 100);
select relay_v1.heartbeat('hot', 'https://hot', 'here', lpad('1', 32, '0')::uuid, '2029-01-01', true, '{"enforced_units": 0, "inclusion_watermark": 1}');
select relay_v1.assign('user', 'hot');
select relay_v1.activate_control('user', 'hot', 'hot', lpad('1', 32, '0')::uuid, 1, 1, 2);
select r.outcome from generate_series(1, 10) n, relay_v1.renew_leases('hot', lpad('1', 32, '0')::uuid,
  '[{"user_id": "user", "relay_host_id": "hot", "epoch": 1, "generation": 1, "units": 3, "inclusion_watermark": 4}]') r;
select is(pg_stat_get_xact_tuples_hot_updated('relay.lease'::regclass), pg_stat_get_xact_tuples_updated('relay.lease'::regclass) - 1,
  'every renewal is a HOT update; only the activation is none');

-- orphans: what no foreign key forbids
select is((select count(*) from relay.lease l where not exists (select from relay.assignment a
  where a.user_id = l.user_id and a.relay_host_id = l.relay_host_id)), 0::bigint, 'no lease without its host');
select is((select count(*) from relay.assignment a where not exists (select from relay.cell c where c.cell_id = a.cell_id)), 0::bigint, 'no host without its cell');
select is((select count(*) from relay.lease l join relay.assignment a using (user_id, relay_host_id)
  where l.state in ('granted', 'active') and (l.cell_id, l.epoch) is distinct from (a.cell_id, a.epoch)), 0::bigint, 'no granted or active lease but on the home, at its epoch');
select * from finish();
