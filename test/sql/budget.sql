-- connection_budget (B1–B3): a large fleet, to the number.
\ir helpers/fleet.sql
select plan(31);

select test_clock.freeze('2030-01-01 00:00:00+00');
create function pg_temp.add(region text, first int, last int, mode text default 'db', flags jsonb default '{}') returns void language sql as $$
  insert into relay.cell (cell_id, url, region, capacity_units, admit_mode, flags, registered_at)
  select region || n, 'https://' || region || n, region, 100, mode, flags, relay.now() from generate_series(first, last) n
$$;
create function pg_temp.budget(listeners int default 0, rolling int default 0, most int default 500, push int default 0)
returns relay_v1.connection_budget_result language sql as $$
  select b from relay_v1.connection_budget(cell_pool => 10, cell_pools => '{"us": 8, "asia": {"pool": 16, "peak": 12}}', directors => 5,
    director_pool => 3, listeners_per_director => listeners, listeners_per_cell => 0, rolling => rolling, auth => 20, api => 50,
    push => push, max_connections => most) b
$$;
create function pg_temp.line(listeners int default 0, rolling int default 0) returns text language sql as $$
  select concat_ws(' ', b.cells, b.configured, b.operating, b.spare, b.within_budget) from pg_temp.budget(listeners, rolling) b
$$;

-- the fleet: six db cells, sixteen reserve cells, seven of Asia, all in db mode
select pg_temp.add('old', 1, 6), pg_temp.add('us', 1, 16, 'reserve'), pg_temp.add('asia', 1, 7);
select is(pg_temp.line(), '300 385 455 35 t', 'B1 main');
select is((select concat_ws(' ', b.directors, b.auth, b.api, b.push, b.overlap, b.maintenance, b.max_connections, b.reserve, b.usable, b.budgeted) from pg_temp.budget() b),
  '15 20 50 0 65 5 500 10 490 465', 'B1 its lines');
select is(pg_temp.line(1), '300 390 465 25 t', 'B3 with a listener a director');
select is((select concat_ws(' ', b.directors, b.overlap) from pg_temp.budget(1) b), '20 70', 'B3 directors, and what overlaps');
select pg_temp.add('asia', 8, 9);
select is(pg_temp.line(), '332 417 487 3 t', 'B1 + two of Asia');
update relay.cell set admit_mode = 'reserve', flags = '{"deadManTripSlots": 2}' where region = 'asia' and cell_id <> 'asia1';
select is(pg_temp.line(), '308 393 463 27 t', 'B1 all but one of Asia in reserve mode, two slots');
select is(pg_temp.line(rolling => 2), '316 401 471 19 t', 'B1 while two of them are replaced');
select pg_temp.add('asia', 10, 11, 'reserve', '{"deadManTripSlots": 2}');
select is(pg_temp.line(), '332 417 487 3 t', 'B1 + two of Asia in reserve mode');
select is(pg_temp.line(rolling => 2), '340 425 495 -5 f', 'B1 while two are replaced, there is room for one more, not for two');
delete from relay.cell where cell_id = 'asia11';
select is(pg_temp.line(rolling => 2), '328 413 483 7 t', 'B1 for one');

-- what counts whole
update relay.cell set flags = '{"deadManTripSlots": 0}' where region = 'asia';
select is((select b.cells from pg_temp.budget() b), 76 + 128 + 9 * 12, 'no slot: nobody ever runs on the database');
update relay.cell set flags = '{"deadManTripSlots": 4}' where cell_id = 'asia2';
select is((select b.cells from pg_temp.budget() b), 76 + 128 + 9 * 12 + 4 * 4, '79 the largest of mixed values counts');
update relay.cell set flags = '{"deadManTripSlots": 64}' where cell_id = 'asia2';
select is((select b.cells from pg_temp.budget() b), 76 + 128 + 9 * 16, 'more slots than cells: all');
update relay.cell set flags = '{}' where cell_id = 'asia2';
select is((select b.cells from pg_temp.budget() b), 76 + 128 + 9 * 16, 'without a number all may trip');
update relay.cell set flags = '{"deadManTripSlots": 0}', admit_mode = 'db' where region = 'asia';
select is((select b.cells from pg_temp.budget() b), 60 + 128 + 10 * 16, 'in db mode a peak is none');
select pg_temp.beat('asia1');
update relay.cell set admission = 'existing-only' where cell_id = 'asia1';
select pg_temp.fence('asia1');
select is((select b.cells from pg_temp.budget() b), 60 + 128 + 9 * 16, 'a fenced cell holds none');
select is((select b.cells from relay_v1.connection_budget(cell_pools => '{"us": 8, "us3": 9, "asia": 16}', listeners_per_cell => 0) b), 60 + 128 + 1 + 9 * 16, 'a cell''s own pool goes before its region''s');
select is((select b.cells from relay_v1.connection_budget(cell_pools => '{"us": 8, "us3": 9, "asia": 16}') b), 60 + 128 + 1 + 9 * 16 + 31, 'and each has a listener');

-- limits
delete from relay.cell;
select is((select concat_ws(' ', b.cells, b.directors, b.within_budget) from relay_v1.connection_budget() b), '0 8 t', 'no cells, two directors');
select pg_temp.add('old', 1, 23);
select is((select concat_ws(' ', b.configured, b.operating, b.usable, b.spare, b.within_budget) from pg_temp.budget(most => 400, push => 4) b), '319 389 390 1 t', 'the stored version of 400 connections');
select is((select concat_ws(' ', b.operating, b.usable, b.spare, b.within_budget) from pg_temp.budget(most => 399, push => 4) b), '389 389 0 f', 'B2 budgeted = max fails');
select is((select concat_ws(' ', b.operating, b.usable, b.budgeted, b.within_budget) from pg_temp.budget(most => 398, push => 4) b), '389 388 399 f', 'B2 operating > usable fails');
select is((select b.overlap from pg_temp.budget(push => 40) b), 15 + 80, 'two generations of push');
select is((select b.overlap from relay_v1.connection_budget(directors => 5, api => 10, auth => 4) b), 40, 'of directors');
select is((select b.overlap from relay_v1.connection_budget(directors => 5, auth => 30) b), 50, 'or of auth');
select is((select b.max_connections from relay_v1.connection_budget() b), current_setting('max_connections')::int, 'the server''s own limit');
select ok((select b.in_use from relay_v1.connection_budget() b) >= 1, 'and what is in use now');
select throws_ok($$ select relay_v1.connection_budget(directors => -1) $$, 'RL001', null, 'a count below zero');
select throws_ok($$ select relay_v1.connection_budget(cell_pools => '[]') $$, 'RL001', null, 'pools that are no object');
select throws_ok($$ select relay_v1.connection_budget(cell_pools => '{"a": "8"}') $$, 'RL001', null, 'a pool that is no number');
select throws_ok($$ select relay_v1.connection_budget(cell_pools => '{"a": {"pool": 8, "peak": 9}}') $$, 'RL001', null, 'a peak above its pool');
select * from finish();
