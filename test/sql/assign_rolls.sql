-- assign: a cell that is being emptied or whose process is replaced: rows 3 stranded, 4 roll-isolated, 5 draining-home,
-- 10 roll-replaced of the table in 03 (41-60; each of those through assign and, as the even number, through resolve).
select plan(88);
\ir helpers/fleet.sql

-- x: capped, being rolled; y: its region; z: another. The stamp S of x is the start of this test.
select test_clock.freeze('2030-01-01 00:00:00+00');
insert into relay.cell (cell_id, url, region, capacity_units, registered_at)
select n, 'https://' || n, r, 1000, relay.now() from (values ('y', 'east'), ('z', 'west'), ('u', 'east')) v (n, r);
insert into relay.cell (cell_id, url, region, admission, roll_isolated_at, capacity_units, connection_hard_cap, connection_unobserved_bound, registered_at)
values ('x', 'https://x', 'east', 'migration-only', relay.now(), 900, 600, 60, relay.now());
update relay.cell set admission = 'migration-only' where cell_id = 'u';
select pg_temp.live_on(61, 'x', 'y', 'z', 'u');

-- Puts a cell in the state that a row of the table is about; times are seconds from its stamp.
create function pg_temp.put(cell text, started interval, ready boolean default false, heard interval default '1 s',
  stamp interval default '10 min', admission text default 'migration-only', connections int default 0) returns void language sql as $$
  update relay.cell c set admission = put.admission, roll_isolated_at = relay.now() - stamp where c.cell_id = cell;
  update relay.cell_runtime r set started_at = relay.now() - coalesce(stamp, '10 min') + started, ready = put.ready,
    heard_at = relay.now() - heard, enforced_units = coalesce(connections, 0), total_connections = connections,
    in_flight_connections = connections * 0, reserved_units = connections * 0
  where r.cell_id = cell;
$$;
-- A host asks, and a phone of another one; both hold a lease on the cell.
create function pg_temp.both(name text, cell text default 'x') returns text language sql as $$
  select pg_temp.seat(name || s, cell), pg_temp.hold(name || s, cell) from unnest(array['', '-resolve']) s;
  select pg_temp.ask(name, floor => 0) || ' / ' || pg_temp.ask(name || '-resolve', 'resolve', floor => 0)
$$;
create function pg_temp.twice(answer text) returns text language sql as $$ select answer || ' / ' || answer $$;

-- 3 stranded
select pg_temp.put('x', '-1 h', true, admission => 'existing-only', stamp => null);
select pg_temp.seat('stranded', 'x', unattached => '59.999 s', active => '30 s'), pg_temp.hold('stranded', 'x', state => 'granted');
select is(pg_temp.ask('stranded'), 'granted sticky x 4', '3 granted 59.999 s ago: not stranded');
update relay.assignment set unattached_since = relay.now() - interval '60 s', last_activity_at = relay.now() - interval '15 min' where relay_host_id = 'stranded';
select is(pg_temp.ask('stranded', place => false), 'granted sticky x 4', '3 asked 15 min ago: not stranded');
update relay.assignment set last_activity_at = relay.now() - interval '14:59.999' where relay_host_id = 'stranded';
select is(pg_temp.ask('stranded', 'resolve'), 'granted sticky x 4', '3 a phone moves nobody');
select is(pg_temp.ask('stranded', place => false), 'would_place stranded', '3 asked not to place');
update relay.cell set admission = 'migration-only' where cell_id = 'x';
select is(pg_temp.ask('stranded', place => false), 'granted sticky x 4', '3 a cell that is not existing-only');
update relay.cell set admission = 'existing-only' where cell_id = 'x';
select is(pg_temp.ask('stranded', region => 'east'), 'granted stranded y 5 from x', '3 moved');
select is(pg_temp.leases('stranded'), 'y granted 5', '3 nothing is held on the cell that did not let it in');
select pg_temp.seat('attached', 'x', active => '2 min'), pg_temp.hold('attached', 'x');
select is(pg_temp.ask('attached'), 'granted sticky x 4', '3 a host that is attached stays');
select pg_temp.seat('stranded-dead', 'x', unattached => '61 s', active => '30 s');
update relay.cell_runtime set heard_at = relay.now() - interval '46 s' where cell_id = 'x';
select is(pg_temp.ask('stranded-dead', place => false), 'would_place stranded', '3 live or not');
-- from asks alone
select pg_temp.beat('x'), pg_temp.seat('asks', 'x');
select is(pg_temp.ask('asks'), 'granted sticky x 4', '3 the first grant');
select pg_temp.live_on(59, 'x', 'y', 'z', 'u');
select is(pg_temp.ask('asks'), 'granted sticky x 4', '3 59 s later it may be on its way');
select pg_temp.live_on(1, 'x', 'y', 'z', 'u');
select is(pg_temp.ask('asks', region => 'east'), 'granted stranded y 5 from x', '3 a minute later it is not');

-- 4 roll-isolated
select pg_temp.put('x', '-1 h', true);
select pg_temp.seat('isolated', 'x'), pg_temp.hold('isolated', 'x');
select is(pg_temp.ask('isolated', 'resolve'), 'granted sticky x 4', '4 a phone moves nobody');
select is(pg_temp.ask('isolated', 'invite'), 'granted sticky x 4', '4 nor an invite');
select is(pg_temp.ask('isolated', 'sweep'), 'granted sticky x 4', '4 nor a sweep');
select is(pg_temp.ask('isolated', place => false), 'would_place roll-isolated', '4 asked not to place');
select ok(pg_temp.untouched('isolated', 'x'), '4 nothing is written then');
select is(pg_temp.ask('isolated', region => 'west'), 'granted roll-isolated y 5 from x', '4 moved to the same region, whatever it prefers');
select is(pg_temp.leases('isolated'), 'x retiring 4, y granted 5', '4 the old lease retires');
select is(pg_temp.retires_in('isolated', 'x'), '60 s'::interval, '4 in 60 s without a drain');
select is((select c.detail ->> 'forced' from relay.change c where c.relay_host_id = 'isolated'), 'false', '4 not forced');
select is((select count(*) from relay.migration m where m.relay_host_id = 'isolated'), 0::bigint, '4 opens no migration');
select pg_temp.order_drain('x', 300000);
select pg_temp.seat('isolated-drain', 'x'), pg_temp.hold('isolated-drain', 'x');
select is(pg_temp.ask('isolated-drain'), 'granted roll-isolated y 5 from x', '4 comes before 5');
select is(pg_temp.retires_in('isolated-drain', 'x'), '5 min'::interval, '4 after the grace of the drain');
select pg_temp.order_drain('x', 300000, 9);
select pg_temp.seat('isolated-other', 'x'), pg_temp.hold('isolated-other', 'x'), pg_temp.ask('isolated-other');
select is(pg_temp.retires_in('isolated-other', 'x'), '60 s'::interval, '4 another process was told to drain: 60 s');
select pg_temp.cancel_drain('x');
select pg_temp.put('x', '-1 h', true, stamp => '2 h');
select pg_temp.seat('old-stamp', 'x'), pg_temp.hold('old-stamp', 'x');
select is(pg_temp.ask('old-stamp'), 'granted sticky x 4', '4 a stamp 2 h old means nothing');
select pg_temp.put('x', '-1 h', true, stamp => '1:59:59.999');
select is(pg_temp.ask('old-stamp', place => false), 'would_place roll-isolated', '4 1 ms before it does');
select pg_temp.put('x', '-1 h', true, stamp => null);
select is(pg_temp.ask('old-stamp'), 'granted sticky x 4', '4 migration-only alone is no roll');
select pg_temp.put('x', '-1 h', true);
select pg_temp.seat('migrating', 'x'), pg_temp.hold('migrating', 'x'), pg_temp.migrate('migrating', 'y', 'x', pinned => false);
select is(pg_temp.ask('migrating'), 'granted sticky x 4', '4 not a host with an open migration');
update relay.cell set admission = 'migration-only' where cell_id = 'y';
select pg_temp.seat('far', 'x'), pg_temp.hold('far', 'x');
select is(pg_temp.ask('far'), 'granted roll-isolated z 5 from x', '4 no target in the region: another');
update relay.cell set admission = 'migration-only' where cell_id = 'z';
select pg_temp.seat('deferred', 'x'), pg_temp.hold('deferred', 'x');
select is(pg_temp.ask('deferred'), 'granted roll-isolated x 4', '4 no target: kept');
select ok(pg_temp.untouched('deferred', 'x'), '4 and nothing is written');
select pg_temp.seat('deferred-new', 'x');
select is(pg_temp.ask('deferred-new'), 'granted roll-isolated x 4', '4 one that holds no lease too');
select is(pg_temp.leases('deferred-new'), 'x granted 4', '4 and is granted one');
select is(relay_v1.explain_assign('user', 'deferred') - 'inputs' - 'candidates', '{"outcome": "granted", "rule": "roll-isolated", "cause": null}', '4 explained alike');
update relay.cell_runtime set enforced_units = 440, total_connections = 440 where cell_id = 'x';
select pg_temp.seat('deferred-full', 'x');
select is(pg_temp.ask('deferred-full'), 'granted roll-isolated x 4', '4 kept on a full cell');
select is(pg_temp.leases('deferred-full'), null, '4 without a lease: there is no room for one');
update relay.cell set admission = 'general' where cell_id in ('y', 'z');

-- 5 draining-home
select pg_temp.put('x', '-1 h', true, admission => 'existing-only', stamp => null), pg_temp.order_drain('x', 120000);
select pg_temp.seat('drained', 'x'), pg_temp.hold('drained', 'x'), pg_temp.migrate('drained', 'z', 'x', epoch => 3);
select is(pg_temp.ask('drained', 'resolve'), 'granted sticky x 4', '5 a phone moves nobody');
select is(pg_temp.ask('drained', place => false), 'would_place draining-home', '5 asked not to place');
select is(pg_temp.ask('drained', region => 'west'), 'granted draining-home y 5 from x', '5 moved to the same region');
select is(pg_temp.leases('drained'), 'x retiring 4, y granted 5', '5 the old lease retires');
select is(pg_temp.retires_in('drained', 'x'), '2 min'::interval, '5 after the grace of the drain');
select is((select string_agg(concat_ws(' ', m.epoch, m.source_cell, m.target_cell, m.pinned_at = relay.now(), m.aborted_at = relay.now()), ', ' order by m.epoch)
  from relay.migration m where m.relay_host_id = 'drained'), '3 z x t t, 5 x y t', '5 the move opens a pinned migration and ends the older one');
select is(pg_temp.ask('drained'), 'granted sticky y 5', '5 once');
select pg_temp.order_drain('x', 120000, 9);
select pg_temp.seat('undrained', 'x'), pg_temp.hold('undrained', 'x');
select is(pg_temp.ask('undrained'), 'granted sticky x 4', '5 an order for another process means nothing');
select pg_temp.order_drain('x', 120000);
update relay.cell set admit_mode = 'reserve' where cell_id = 'x';
select is(pg_temp.ask('undrained', floor => 0), 'granted reserve-pin x 4', '5 not a reserve cell');
update relay.cell set admit_mode = 'db' where cell_id = 'x';
update relay.cell set admission = 'migration-only' where cell_id in ('y', 'z');
select is(pg_temp.ask('undrained'), 'no_capacity draining-home', '5 no target: no capacity');
select ok(pg_temp.untouched('undrained', 'x'), '5 and nothing is written');
update relay.cell set admission = 'general' where cell_id in ('y', 'z');
select pg_temp.cancel_drain('x');

-- 10 roll-replaced
select pg_temp.put('x', '1 ms');
select is(pg_temp.both('41'), pg_temp.twice('granted roll-replaced y 5 from x'), '41, 42 not ready, started S + 1 ms, nobody on it: moved on the first try');
select is(pg_temp.leases('41') || '; ' || pg_temp.leases('41-resolve'), 'x retiring 4, y granted 5; x retiring 4, y granted 5', '41, 42 the old lease retires');
select is(pg_temp.changes('41'), 'moved x y 5 roll-replaced', '41 with one change');
select is(pg_temp.retires_in('41', 'x'), '60 s'::interval, '41 in 60 s');
select is(pg_temp.ask('41'), 'granted sticky y 5', '41 once');
select pg_temp.put('x', '-1 ms');
select is(pg_temp.both('43'), pg_temp.twice('unavailable home-unavailable not_ready'), '43, 44 started S - 1 ms: the drained process');
select ok(pg_temp.untouched('43', 'x') and pg_temp.untouched('43-resolve', 'x'), '43, 44 row and leases stay');
select pg_temp.put('x', '1 ms', connections => 1);
select is(pg_temp.both('45'), pg_temp.twice('unavailable home-unavailable not_ready'), '45, 46 somebody is on it');
select pg_temp.put('x', '1 ms');
update relay.cell_runtime set in_flight_connections = 1, enforced_units = 1 where cell_id = 'x';
select is(pg_temp.both('45-flight'), pg_temp.twice('unavailable home-unavailable not_ready'), '45, 46 or in flight');
select pg_temp.put('x', '1 ms', connections => null);
select is(pg_temp.both('45-unknown'), pg_temp.twice('unavailable home-unavailable not_ready'), '45, 46 or nobody knows');
select pg_temp.put('x', '1 ms', heard => '46 s');
select is(pg_temp.both('47'), pg_temp.twice('unavailable home-unavailable unheard'), '47, 48 heard once, then 46 s silent');
select pg_temp.put('x', '1 ms', heard => '45 s');
select is(pg_temp.both('47-edge'), pg_temp.twice('unavailable home-unavailable unheard'), '47, 48 45 s silent');
select pg_temp.put('x', '1 ms', heard => '44.999 s');
select is(pg_temp.both('47-fresh'), pg_temp.twice('granted roll-replaced y 5 from x'), '47, 48 44.999 s silent: moved');
select pg_temp.put('x', '1 ms', stamp => '2:00:00.001');
select is(pg_temp.both('49'), pg_temp.twice('unavailable home-unavailable not_ready'), '49, 50 the stamp is 2 h + 1 ms old');
select pg_temp.put('x', '1 ms', stamp => '2 h');
select is(pg_temp.both('49-edge'), pg_temp.twice('unavailable home-unavailable not_ready'), '49, 50 2 h old');
select pg_temp.put('x', '1 ms', stamp => '1:59:59.999');
select is(pg_temp.both('49-young'), pg_temp.twice('granted roll-replaced y 5 from x'), '49, 50 2 h - 1 ms old: moved');
select pg_temp.put('x', '1 ms', admission => 'general', stamp => null);
select is(pg_temp.both('51'), pg_temp.twice('unavailable home-unavailable not_ready'), '51, 52 general and not ready');
select pg_temp.put('x', '1 ms', stamp => null);
select is(pg_temp.both('53'), pg_temp.twice('unavailable home-unavailable not_ready'), '53, 54 migration-only without a stamp');
select pg_temp.put('x', '-1 h', heard => '46 s');
select is(pg_temp.both('55'), pg_temp.twice('unavailable home-unavailable unheard'), '55, 56 the old process is silent, the new one not heard yet');
select pg_temp.put('x', '1 ms');
update relay.cell set capacity_units = 1 where cell_id = 'y';
select is(pg_temp.both('57'), pg_temp.twice('granted roll-replaced z 5 from x'), '57, 58 no room in the region, room in another');
update relay.cell set capacity_units = 1 where cell_id = 'z';
select is(pg_temp.both('57-full'), pg_temp.twice('unavailable home-unavailable not_ready'), '57, 58 no room at all: unavailable');
select ok(pg_temp.untouched('57-full', 'x'), '57 row and leases stay');
select is(relay_v1.explain_assign('user', '57-full') - 'inputs' - 'candidates', '{"outcome": "unavailable", "rule": "home-unavailable", "cause": "not_ready"}', '57 explained alike');
update relay.cell set capacity_units = 1000 where cell_id in ('y', 'z');
select is(relay_v1.explain_assign('user', '57-full') - 'inputs' - 'candidates', '{"outcome": "would_place", "rule": "roll-replaced", "cause": null}', '57 and with room');
select is(pg_temp.ask('57-full', place => false), 'would_place roll-replaced', '57 asked not to place');
select is((select c ->> 'rejected' from jsonb_array_elements(relay_v1.explain_assign('user', '57-full') -> 'candidates') c
  where c ->> 'cell_id' = 'x'), 'home', '57 the home that is left is no candidate');
select pg_temp.put('x', '0');
select is(pg_temp.both('59'), pg_temp.twice('unavailable home-unavailable not_ready'), '59 started = S: refused');
select pg_temp.put('x', '1 ms');
select is(pg_temp.ask('59', 'invite'), 'granted roll-replaced y 5 from x', '59 an invite moves');
select is(pg_temp.ask('59-resolve', 'sweep'), 'unavailable home-unavailable not_ready', '59 a sweep does not');
select is(pg_temp.ask('59-resolve', 'operator'), 'unavailable home-unavailable not_ready', '59 nor an operator');
select pg_temp.seat('59-open', 'x'), pg_temp.hold('59-open', 'x'), pg_temp.migrate('59-open', 'y', 'x', pinned => false);
select is(pg_temp.ask('59-open'), 'unavailable home-unavailable not_ready', '59 an open migration: not by this row');
update relay.migration set registered_at = relay.now(), completed_at = relay.now() where relay_host_id = '59-open';
select is(pg_temp.ask('59-open'), 'granted roll-replaced y 5 from x', '59 a completed one does not matter');
-- uncapped
select pg_temp.put('u', '1 ms', connections => null);
select is(pg_temp.both('59-u', 'u'), pg_temp.twice('granted roll-replaced y 5 from u'), '59 uncapped, without counts: moved');
select pg_temp.put('u', '1 ms', connections => 3);
select is(pg_temp.both('59-u-counts', 'u'), pg_temp.twice('granted roll-replaced y 5 from u'), '59 whatever it counts');
update relay.cell set admission = 'migration-only' where cell_id in ('y', 'z');
select is(pg_temp.both('59-u-full', 'u'), pg_temp.twice('no_capacity roll-replaced'), '59 uncapped and no target: no capacity');
update relay.cell set admission = 'general' where cell_id in ('y', 'z');

-- 60, by heartbeats alone: the old process had 5 connections, and the new one is not ready yet
delete from relay.cell_runtime where cell_id = 'x';
update relay.cell set roll_isolated_at = null, admission = 'general' where cell_id = 'x';
select pg_temp.beat('x', 5, process => 1);
select pg_temp.seat('60', 'x'), pg_temp.hold('60', 'x');
update relay.cell set roll_isolated_at = relay.now(), admission = 'migration-only' where cell_id = 'x';
select pg_temp.live_on(45, 'y', 'z');
select is(pg_temp.ask('60', floor => 4), 'unavailable home-unavailable unheard', '60 first dial, the process boots');
select pg_temp.live_on(5, 'y', 'z');
select is(pg_temp.ask('60', floor => 4), 'unavailable home-unavailable unheard', '60 second');
select pg_temp.live_on(5, 'y', 'z');
select is(pg_temp.ask('60', floor => 4), 'unavailable home-unavailable unheard', '60 third');
select pg_temp.live_on(5, 'y', 'z');
select is(pg_temp.ask('60', floor => 4), 'unavailable home-unavailable unheard', '60 fourth');
select pg_temp.beat('x', 0, ready => false, process => 2, started => relay.now() - interval '3 s');
select is(pg_temp.ask('60', floor => 4), 'granted roll-replaced y 5 from x', '60 the first after the new heartbeat succeeds');
select * from finish();
