-- assign and reserve mode: row 6 reserve-pin of the table in 03, dormant hosts of a reserve cell, reserve cells as targets (91).
select plan(25);
\ir helpers/fleet.sql

select test_clock.freeze('2030-01-01 00:00:00+00');
-- r: capped, reserve; y: a db cell; 10 units each
insert into relay.cell (cell_id, url, region, admit_mode, capacity_units, connection_hard_cap, connection_unobserved_bound, registered_at)
select n, 'https://' || n, 'east', m, 10, h, h - 110, relay.now() from (values ('r', 'reserve', 600), ('y', 'db', null)) v (n, m, h);
select pg_temp.live_on(76, 'r', 'y');
create function pg_temp.effective(mode text, process int default 1, age interval default '0') returns void language sql as $$
  delete from relay.cell_effective_mode;
  insert into relay.cell_effective_mode (cell_id, incarnation, mode, updated_at)
  values ('r', lpad(process::text, 32, '0')::uuid, mode, relay.now() - age)
$$;
create function pg_temp.rejected() returns text language sql as $$
  select coalesce(c ->> 'rejected', 'candidate')
  from jsonb_array_elements(relay_v1.explain_assign('user', 'nobody') -> 'candidates') c where c ->> 'cell_id' = 'r'
$$;

-- 6 reserve-pin
select pg_temp.seat('pin', 'r');
select is(pg_temp.ask('pin', floor => 4), 'granted reserve-pin r 4', '6 kept');
select is(pg_temp.leases('pin'), null, '6 without a lease');
select is(pg_temp.changes('pin'), null, '6 without a write');
select is((select r.lease_expires_at from relay_v1.assign('user', 'pin', epoch_floor => 4) r), relay.now() + interval '90 s', '6 for 90 s');
select is(pg_temp.ask('pin', c), 'granted reserve-pin r 4', '6 for ' || c) from unnest(array['resolve', 'invite', 'sweep', 'operator']) c;
select pg_temp.beat('r', 10);
select is(pg_temp.ask('pin', floor => 4), 'granted reserve-pin r 4', '6 on a full cell too');
select pg_temp.seat('pinned', 'r'), pg_temp.migrate('pinned', 'y', 'r');
select is(pg_temp.ask('pinned', floor => 4), 'granted reserve-pin r 4', '91 a pin on a live reserve cell');
select is(pg_temp.leases('pinned'), null, '91 writes nothing');
select pg_temp.seat('held', 'r'), pg_temp.hold('held', 'r');
update relay.assignment set last_activity_at = relay.now() - interval '1 hour' where relay_host_id = 'held';
select is(pg_temp.ask('held', floor => 4), 'granted reserve-pin r 4', '6 a host that holds a lease');
select is((select a.last_activity_at from relay.assignment a where a.relay_host_id = 'held'), relay.now() - interval '1 hour', '6 is not stamped');
select pg_temp.beat('r', ready => false);
select is(pg_temp.ask('pin', floor => 4), 'unavailable home-unavailable not_ready', '6 not a cell that is not ready');
-- 2 dormant
select pg_temp.seat('sleeps', 'r', active => '25 hours'), pg_temp.seat('sleeps-on', 'r', active => '25 hours');
select is(pg_temp.ask('sleeps', floor => 4), 'unavailable home-unavailable not_ready', '2 not a host of a fresh reserve cell, ready or not');
select pg_temp.beat('r');
select is(pg_temp.ask('sleeps', floor => 4), 'granted reserve-pin r 4', '2 its activity is in the memory of the cell');
select pg_temp.live_on(45, 'y');
select is(pg_temp.ask('sleeps', floor => 4), 'granted dormant y 5 from r', '2 of a silent reserve cell it is');

-- target
select pg_temp.beat('r');
select is(pg_temp.rejected(), 'reserve', '91 a reserve cell is no target');
select pg_temp.effective('db');
select is(pg_temp.rejected(), 'candidate', '91 by its own db row it is');
select pg_temp.effective('reserve');
select is(pg_temp.rejected(), 'reserve', '91 not by a row that says reserve');
select pg_temp.effective('db', 2);
select is(pg_temp.rejected(), 'reserve', '91 nor by one of another process');
select pg_temp.effective('db', age => '45 s');
select is(pg_temp.rejected(), 'reserve', '91 nor by one 45 s old');
select pg_temp.effective('db', age => '44.999 s');
select is(pg_temp.rejected(), 'candidate', '91 44.999 s old: it is');
update relay.cell set admission = 'migration-only' where cell_id = 'y';
select is(pg_temp.ask('fresh', floor => 0), 'granted new r 1', '91 a fresh host lands there');
select is(pg_temp.leases('fresh'), 'r granted 1', '91 with a lease');
select * from finish();
