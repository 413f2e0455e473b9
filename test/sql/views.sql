-- Views fleet and recent_changes: what the fleet page, the console and an operator read (02, the SQL interface).
\ir helpers/fleet.sql
select plan(29);

create function pg_temp.cell(cell text) returns text language sql as $$
  select concat_ws(' ', f.state, f.live, f.admission, f.admission_generation, 'load ' || f.load, 'free ' || f.free_units)
  from relay_v1.fleet f where f.cell_id = cell
$$;
create function pg_temp.age(cell text) returns text language sql as $$
  select concat_ws(' ', f.heard_age, f.roll_age) from relay_v1.fleet f where f.cell_id = cell
$$;
create function pg_temp.last() returns text language sql as $$
  select concat_ws(' ', r.age, r.kind, r.from_cell, r.to_cell, r.epoch, r.rule) from relay_v1.recent_changes r limit 1
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'here', 10) from unnest(array['x', 'y', 'silent']) n;
select relay_v1.register_cell('capped', 'https://capped', 'there', 900, 170, 60);
select pg_temp.beat(n) from unnest(array['x', 'y']) n;

-- fleet
select is((select string_agg(f.cell_id, ' ') from relay_v1.fleet f), 'capped silent x y', 'every cell, by name');
select is(pg_temp.cell('silent'), 'never heard f general 0', 'a cell that was never heard: neither load nor room is known');
select is(pg_temp.cell('x'), 'live t general 0 load 0 free 10', 'a live one');
select is((select f.effective_mode from relay_v1.fleet f where f.cell_id = 'x'), null, 'that said nothing of its mode');
select is((select f.drain_progress from relay_v1.fleet f where f.cell_id = 'x'), null, 'and is told to drain nobody');
select pg_temp.beat('x', 4);
select is(pg_temp.cell('x'), 'live t general 0 load 4 free 6', 'with units of it used');
select pg_temp.beat('x', 14);
select is(pg_temp.cell('x'), 'live t general 0 load 14 free 0', 'more than it may be given: free is 0, not below');
select pg_temp.beat('x', 0, false);
select is(pg_temp.cell('x'), 'not ready f general 0 load 0 free 10', 'one that says it is not ready');
select pg_temp.beat('x');
select test_clock.advance('44.999 s');
select is(pg_temp.cell('x'), 'live t general 0 load 0 free 10', 'live just short of 45 s');
select is(pg_temp.age('x'), '00:00:44.999', 'with the age of its heartbeat');
select test_clock.advance('1 ms');
select is(pg_temp.cell('x'), 'unheard f general 0 load 0 free 10', 'and at 45 s not');
select pg_temp.beat('x'), pg_temp.beat('y'), pg_temp.beat('capped', 3);
select is(pg_temp.cell('capped'), 'live t general 0 load 3 free 7', 'a capped cell has room up to its limit, cap - 100 - bound');
select relay_v1.isolate_for_roll('x');
select test_clock.advance('5 s');
select is(pg_temp.cell('x'), 'live t migration-only 1 load 0 free 10', 'set apart for a roll, one generation on');
select is(pg_temp.age('x'), '00:00:05 00:00:05', 'since when');
insert into relay.cell_effective_mode (cell_id, incarnation, mode, updated_at) values ('x', lpad('1', 32, '0')::uuid, 'db', relay.now());
select is((select f.effective_mode from relay_v1.fleet f where f.cell_id = 'x'), 'db', 'what the process says of its mode');

select pg_temp.seat(h, 'x'), pg_temp.hold(h, 'x') from unnest(array['a', 'b', 'c', 'd']) h;
select relay_v1.start_drain('x');
select is((select concat_ws(' ', f.draining, f.drain_progress) from relay_v1.fleet f where f.cell_id = 'x'), 't 0.000', 'a drain begins');
select relay_v1.assign('user', 'a');
select is((select f.drain_progress from relay_v1.fleet f where f.cell_id = 'x'), 0.25, 'and one host of four has moved');

-- recent_changes
select is((select concat_ws(' ', r.kind, r.from_cell, r.to_cell, r.epoch, r.rule, r.age, r.detail ->> 'forced') from relay_v1.recent_changes r
  where r.kind = 'moved'), 'moved x y 5 roll-isolated 00:00:00 false', 'a move, with its rule');
select is((select r.host from relay_v1.recent_changes r where r.kind = 'moved'),
  left(encode(sha256('user'::bytea || '\x00'::bytea || 'a'::bytea), 'hex'), 12), 'of a host that it names by digest');
select relay_v1.set_admission('y', 'existing-only');
select is(pg_temp.last(), '00:00:00 admission y', 'the newest first');
select is((select r.detail ->> 'to' from relay_v1.recent_changes r limit 1), 'existing-only', 'with its detail');
select is((select r.host from relay_v1.recent_changes r limit 1), null, 'a change of a cell has no host');
select test_clock.advance('90 s');
select is(pg_temp.last(), '00:01:30 admission y', 'and ages');
select is((select bool_and(r.id > r.next) from (select r.id, lead(r.id) over () as next from relay_v1.recent_changes r) r where r.next is not null), true, 'in the order of the log');
insert into relay.change (kind, to_cell, at) select 'flags', 'n' || n, relay.now() from generate_series(1, 1500) n;
select is((select concat_ws(' ', count(*), min(r.to_cell) filter (where r.to_cell = 'n501'), count(*) filter (where r.to_cell = 'n500'))
  from relay_v1.recent_changes r), '1000 n501 0', 'the last 1 000 of them');
select is((select bool_or(r::text ~ 'user') from relay_v1.recent_changes r), false, 'no account in it');

-- who reads them
create function pg_temp.reads(role text) returns text language sql as $$
  select concat_ws(' ', has_table_privilege(role, 'relay_v1.fleet', 'select'), has_table_privilege(role, 'relay_v1.recent_changes', 'select'))
$$;
select is((select string_agg(pg_temp.reads(r), ' ') from unnest(array['relay_director', 'relay_operator', 'relay_monitor']) r), 't t t t t t', 'directors, operators and the monitor read both');
select is(pg_temp.reads('relay_cell'), 'f f', 'a cell reads neither');
set session authorization relay_monitor;
select set_config('test.read', concat_ws(' ', (select count(*) from relay_v1.fleet), (select count(*) from relay_v1.recent_changes)), true);
reset session authorization;
select is(current_setting('test.read'), '4 1000', 'without any right on what is behind them');
select * from finish();
