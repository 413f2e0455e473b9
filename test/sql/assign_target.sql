-- The target of a placement, the load of a cell, explain_assign (03 target; 02 capacity).
select plan(43);

create function pg_temp.beat(cell text, units int default 0, mark bigint default 1, process int default 1, ready boolean default true)
returns text language sql as $$
  select relay_v1.heartbeat(cell, 'https://' || cell, c.region, lpad(process::text, 32, '0')::uuid,
    timestamptz '2029-01-01' + make_interval(secs => process), ready,
    jsonb_build_object('enforced_units', units, 'inclusion_watermark', mark))
  from relay.cell c where c.cell_id = cell
$$;
create function pg_temp.lease(host text, cell text, mark bigint default null, process int default 1, units int default 1,
  life interval default '90 s') returns void language sql as $$
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, state, units, expires_at, incarnation, generation, inclusion_watermark)
  values ('user', host, cell, 1, case when mark is null then 'granted' else 'active' end, units, relay.now() + life,
    case when mark is not null then lpad(process::text, 32, '0')::uuid end, case when mark is not null then 1 end, mark)
$$;
create function pg_temp.place(host text, region text default null) returns text language sql as $$
  select concat_ws(' ', r.outcome, r.rule, r.cell_id) from relay_v1.assign('user', host, region) r
$$;
create function pg_temp.why(cell text, host text default 'nobody', region text default null) returns text language sql as $$
  select coalesce(c ->> 'rejected', 'candidate')
  from jsonb_array_elements(relay_v1.explain_assign('user', host, region) -> 'candidates') c where c ->> 'cell_id' = cell
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell('a', 'https://a', 'east', 100);

-- load
select is(relay.load('a', relay.now()), null, 'a cell that was never heard has no load');
select pg_temp.beat('a', 40, 7);
select is(relay.load('a', relay.now()), 40, 'what the heartbeat says');
select pg_temp.lease('granted', 'a');
select is(relay.load('a', relay.now()), 41, 'and a lease from the moment it is granted');
select pg_temp.lease('observed', 'a', 7);
select is(relay.load('a', relay.now()), 41, 'a lease up to the watermark is in the heartbeat');
select pg_temp.lease('unobserved', 'a', 8, units => 3);
select is(relay.load('a', relay.now()), 44, 'one above it is not, with all its units');
select pg_temp.lease('old-process', 'a', 2, process => 0), pg_temp.lease('new-process', 'a', 2, process => 2);
select is(relay.load('a', relay.now()), 46, 'nor one of another process');
select pg_temp.lease('expired', 'a', life => '0 s');
select is(relay.load('a', relay.now()), 46, 'an expired one counts for nothing');
select pg_temp.lease('elsewhere', 'b');
select is(relay.load('a', relay.now()), 46, 'nor one on another cell');
select pg_temp.beat('a', 45, 8);
select is(relay.load('a', relay.now()), 48, 'a heartbeat that includes it counts it instead');
select pg_temp.beat('a', 0, 1, process => 2);
select is(relay.load('a', relay.now()), 7, 'a new process has nobody yet, and its predecessor''s leases may come back');

-- candidates, one reason each
select is(pg_temp.why('a'), 'candidate', 'general, live, not full');
update relay.cell set admission = 'migration-only';
select is(pg_temp.why('a'), 'admission', 'migration-only');
update relay.cell set admission = 'existing-only';
select is(pg_temp.why('a'), 'admission', 'existing-only');
update relay.cell set admission = 'general', admit_mode = 'reserve';
select is(pg_temp.why('a'), 'reserve', 'in reserve mode');
update relay.cell set admit_mode = 'db', drain_incarnation = lpad('2', 32, '0')::uuid, drain_grace_ms = 0, drain_pace_ms = 0;
select is(pg_temp.why('a'), 'draining', 'its process was told to drain');
update relay.cell set drain_incarnation = lpad('1', 32, '0')::uuid;
select is(pg_temp.why('a'), 'candidate', 'an earlier one was');
select pg_temp.beat('a', 93, 1, process => 2);
select is(pg_temp.why('a'), 'full', 'load = limit');
select is(pg_temp.place('refused'), 'no_capacity new', 'none: no capacity');
select is((select count(*) from relay.assignment), 0::bigint, 'and no row');
select pg_temp.beat('a', 92, 1, process => 2);
select is(pg_temp.why('a'), 'candidate', 'load = limit - 1');
select pg_temp.beat('a', 92, 1, process => 2, ready => false);
select is(pg_temp.why('a'), 'not_ready', 'not ready');
select pg_temp.beat('a', 92, 1, process => 2);
select test_clock.advance('44.999 s');
select is(pg_temp.why('a'), 'candidate', 'heard 44.999 s ago');
select test_clock.advance('1 ms');
select is(pg_temp.why('a'), 'unheard', 'heard 45 s ago');
select pg_temp.beat('a', 92, 1, process => 2);
select is(pg_temp.place('last'), 'granted new a', 'the last free unit is granted');
select is(pg_temp.place('one-more'), 'no_capacity new', 'and no more');
select is(pg_temp.place('last'), 'granted sticky a', 'its host keeps it');

-- regions
select relay_v1.register_cell(n, 'https://' || n, r, 10000) from (values ('b', 'west'), ('c', 'west'), ('d', 'north')) v (n, r);
select pg_temp.beat(n) from unnest(array['b', 'c', 'd']) n;
select is((select count(*) from generate_series(1, 20) n where pg_temp.place('w' || n, 'west') ~ ' [bc]$'), 20::bigint, 'the preferred region, if it has room');
select is((select count(*) from generate_series(1, 20) n where pg_temp.place('e' || n, 'east') ~ ' [bcd]$'), 20::bigint, 'another, if its cells are full');
select is((select count(distinct pg_temp.place('x' || n)) from generate_series(1, 60) n), 3::bigint, 'no preference: all of them');
select is(pg_temp.why('d', region => 'west'), 'region', 'explained: not in the region');
insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at, preferred_region, preferred_region_at)
select 'user', h, 'a', 3, relay.now(), 'north', relay.now() - t from (values ('recent', interval '29 d 23:59'), ('old', '30 d')) v (h, t);
insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at, preferred_region, preferred_region_at)
select 'user', 'p' || n, 'a', 3, relay.now(), 'north', relay.now() from generate_series(1, 20) n;
select is(pg_temp.place('recent'), 'granted headroom d', 'the stored preference');
select is((select count(*) from generate_series(1, 10) n where pg_temp.place('p' || n) = 'granted headroom d'), 10::bigint, 'always');
select is((select count(*) from generate_series(11, 20) n where pg_temp.place('p' || n, 'west') ~ ' [bc]$'), 10::bigint, 'but what the host asks for goes first');
select is(pg_temp.why('d', 'old'), 'candidate', 'not after 30 d (incident 33): none of its own region has room');
update relay.cell set capacity_units = 10000 where cell_id = 'a';
select is(pg_temp.why('d', 'old'), 'region', 'and then its own region is preferred');

-- two at random, the lower ratio wins; all are looked at only when both are full
update relay.cell set admission = 'existing-only' where cell_id in ('a', 'd');
select pg_temp.beat('b', 5000), pg_temp.beat('c', 100);
select is((select count(*) from generate_series(1, 20) n where pg_temp.place('r' || n) = 'granted new c'), 20::bigint, 'of two, the emptier one');
select relay_v1.register_cell('f' || n, 'https://f' || n, 'west', 1) from generate_series(1, 40) n;
select pg_temp.beat('f' || n, 1) from generate_series(1, 40) n;
update relay.cell set admission = 'existing-only' where cell_id = 'b';
select is((select count(*) from generate_series(1, 20) n where pg_temp.place('s' || n) = 'granted new c'), 20::bigint, 'the one with room among 40 full ones');

-- explain_assign
select is(relay_v1.explain_assign('user', 'last') #>> '{inputs,row,epoch}', '1', 'explained: the row');
select is(relay_v1.explain_assign('user', 'last') #>> '{inputs,lease,state}', 'granted', 'the lease');
select is(relay_v1.explain_assign('user', 'last') #>> '{inputs,cell,cell_id}', 'a', 'the cell');
select is(relay_v1.explain_assign('user', 'last') #>> '{inputs,runtime,enforced_units}', '92', 'its heartbeat');
select is((select c from jsonb_array_elements(relay_v1.explain_assign('user', 'last') -> 'candidates') c where c ->> 'cell_id' = 'f1'),
  '{"cell_id": "f1", "load": 1, "limit": 1, "rejected": "full"}', 'and every cell');
select is(relay_v1.explain_assign('user', 'unknown') - 'inputs' - 'candidates', '{"outcome": "would_place", "rule": "new", "cause": null}', 'a new host');
select * from finish();
