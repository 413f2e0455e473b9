-- host_row: what Postgres knows of a host (F7).
\ir helpers/fleet.sql
select plan(13);

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'region-' || n, 100), pg_temp.beat(n) from unnest(array['x', 'y']) n;
select pg_temp.seat('h', 'x', 4, '5 s', '1 min');
insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at, preferred_region, preferred_region_at)
values ('another', 'h', 'y', 9, relay.now(), 'there', relay.now()), ('another', 'other', 'gone', 2, relay.now(), null, null);

select throws_ok($$ select relay_v1.host_row(null, 'user') $$, 'RL001', null, 'a host is needed');
select is((select count(*) from relay_v1.host_row('nobody', 'user')), 0::bigint, 'no row of no host');
select is((select count(*) from relay_v1.host_row('other', 'user')), 0::bigint, 'nor of another account''s');
select is((select row(r.*) from relay_v1.host_row('h', 'user') r)::text,
  row('user', 'h', 'x', 4, 'https://x', 'region-x', 'db', relay.now() - interval '1 min', relay.now() - interval '5 s', null, '[]'::jsonb, null::jsonb, relay.now())::text, 'the row, its home and when it was read');
select is((select string_agg(concat_ws(' ', r.user_id, r.cell_id, r.epoch, r.preferred_region), ', ') from relay_v1.host_row('h') r), 'another y 9 there, user x 4',
  'without the account: of each that has a host of this id');
select relay_v1.set_admit_mode('x', 'reserve');
select is((select r.admit_mode from relay_v1.host_row('h', 'user') r), 'reserve', 'how its home is recorded to admit');
select is((select array[r.cell_id, r.cell_url, r.admit_mode] from relay_v1.host_row('other') r), array['gone', null, null], 'a home that is no longer registered has a name only');

select pg_temp.hold('h', 'x', 4);
select pg_temp.hold('h', 'y', 3, 'retiring', '-1 s');
select is((select jsonb_path_query_array(r.leases, '$[*].cell_id') from relay_v1.host_row('h', 'user') r), '["x", "y"]', 'its leases, expired ones too');
select is((select r.leases -> 0 from relay_v1.host_row('h', 'user') r), jsonb_build_object('cell_id', 'x', 'epoch', 4, 'state', 'active', 'incarnation', lpad('1', 32, '0')::uuid,
  'generation', 1, 'units', 1, 'expires_at', (extract(epoch from relay.now()) * 1000)::bigint + 105000, 'retire_until', null), 'each whole');
select pg_temp.migrate('h', 'y', 'x', 4);
select is((select r.migration from relay_v1.host_row('h', 'user') r), jsonb_build_object('epoch', 4, 'source_cell', 'y', 'target_cell', 'x', 'pinned', true, 'registered', false,
  'opened_at', (extract(epoch from relay.now()) * 1000)::bigint), 'its open migration');
update relay.migration set aborted_at = relay.now();
select is((select r.migration from relay_v1.host_row('h', 'user') r), null, 'and none that ended');

set enable_seqscan = off;
create function pg_temp.plan_of(query text) returns text language plpgsql as $$
declare v_line text; v_all text := '';
begin
  for v_line in execute 'explain ' || query loop v_all := v_all || v_line; end loop;
  return v_all;
end $$;
select ok(pg_temp.plan_of($$ select r.* from relay.assignment a, relay.describe_host(a) r where a.user_id = 'user' and a.relay_host_id = 'h' $$) like '%Index%assignment%', 'a host is read by an index');
select ok(pg_temp.plan_of($$ select r.* from relay.assignment a, relay.describe_host(a) r where a.relay_host_id = 'h' $$) like '%assignment_relay_host_id_idx%', 'without the account, too');
select * from finish();
