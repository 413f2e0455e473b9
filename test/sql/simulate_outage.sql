-- simulate_outage: the decision of assign over hypothetical loads; writes and locks nothing.
select plan(24);
\ir helpers/fleet.sql

-- six cells: e1 to e4 in the east, w1 and w2 in the west; e1 uncapped, e2 capped, e3 capped and reserve
select test_clock.freeze('2030-01-01 00:00:00+00');
insert into relay.cell (cell_id, url, region, admit_mode, capacity_units, connection_hard_cap, connection_unobserved_bound, registered_at)
select n, 'https://' || n, case when n < 'f' then 'east' else 'west' end, m, u, h, h / 10, relay.now()
from (values ('e1', 'db', 10, null), ('e2', 'db', 900, 600), ('e3', 'reserve', 900, 600), ('e4', 'db', 12, null),
  ('w1', 'db', 100, null), ('w2', 'db', 100, null)) v (n, m, u, h);
select pg_temp.live_on(61, 'e1', 'e2', 'e3', 'e4', 'w1', 'w2');
select pg_temp.seat(c || '-' || n, c), pg_temp.hold(c || '-' || n, c) from unnest(array['e1', 'e2', 'e3']) c, generate_series(1, 5) n;
update relay.cell set admission = 'migration-only' where cell_id in ('e1', 'e2', 'e3');
select pg_temp.beat('e4', 9), pg_temp.beat('w1', 50), pg_temp.beat('w2', 10);
create temp table before as select (select count(*) from relay.change) as changes, (select count(*) from relay.lease) as leases;
create function pg_temp.sim(cells text[] default null, region text default null) returns text language sql as $$
  select string_agg(x.line, ', ' order by x.line) from (
    select concat_ws(' ', count(*), s.outcome, s.rule, s.cause, s.to_cell, max(s.to_load) || '/' || max(s.to_limit)) as line
    from relay_v1.simulate_outage(cells, region) s group by s.outcome, s.rule, s.cause, s.to_cell) x
$$;

select is(pg_temp.sim('{e1}'), '2 granted dead-uncapped w2 12/100, 3 granted dead-uncapped e4 12/12',
  'hosts of a dead cell go to their region until it is full, and then to the emptiest cell elsewhere');
select is((select string_agg(s.relay_host_id || ' ' || s.from_cell || ' ' || s.to_cell || ' ' || s.to_region, ', ')
  from relay_v1.simulate_outage('{e1}') s), 'e1-1 e1 e4 east, e1-2 e1 e4 east, e1-3 e1 e4 east, e1-4 e1 w2 west, e1-5 e1 w2 west', 'a row a host');
select is(pg_temp.sim('{e2}'), '5 unavailable home-unavailable unheard', 'hosts of a capped cell are refused');
select is(pg_temp.sim('{e3}'), '2 granted dead-reserve w2 12/100, 3 granted dead-reserve e4 12/12', 'hosts of a reserve cell move if the polls may say so');
select is(pg_temp.sim('{e3,w1}'), '2 granted dead-reserve w2 12/100, 3 granted dead-reserve e4 12/12', 'two of six: they may');
select is(pg_temp.sim('{e3,w1,w2}'), '5 unavailable home-unavailable unheard', 'three of six: withheld, fleet');
select is(pg_temp.sim('{e3,e4}'), '5 unavailable home-unavailable unheard', 'half of a region: withheld, region');
update relay.cell_runtime set heard_at = relay.now() - interval '46 s' where cell_id = 'w1';
select is(pg_temp.sim('{e3}'), '5 unavailable home-unavailable unheard', 'five cells: withheld, sample');
select pg_temp.beat('w1', 50);
select is(pg_temp.sim(region => 'east'), '10 unavailable home-unavailable unheard, 5 granted dead-uncapped w2 15/100', 'a whole region');
select is(pg_temp.sim('{e1}', 'west'), '2 no_capacity dead-uncapped, 3 granted dead-uncapped e4 12/12', 'a region and a cell; no room: no capacity');
select is(pg_temp.sim('{e1,e2,e3,e4,w1,w2}'), '15 unavailable home-unavailable unheard', 'all of them: nobody is judged');
select pg_temp.migrate('e1-5', 'w1', 'e1');
select is(pg_temp.sim('{e1}'), '1 granted dead-uncapped w2 11/100, 1 unavailable home-unavailable unheard, 3 granted dead-uncapped e4 12/12', 'a pinned host is refused');
update relay.assignment set last_activity_at = relay.now() - interval '24 hours' where relay_host_id = 'e1-4';
select is(pg_temp.sim('{e1}'), '1 unavailable home-unavailable unheard, 3 granted dead-uncapped e4 12/12', 'only who was active in the last 24 h');
update relay.cell set admission = 'existing-only' where cell_id = 'e2';
select is(pg_temp.sim('{e2}'), '5 unavailable home-unavailable draining', 'existing-only: draining');
select pg_temp.fence('e2');
select is(pg_temp.sim('{e2}'), '2 granted fenced w2 12/100, 3 granted fenced e4 12/12', 'once fenced they move');
update relay.cell set admit_mode = 'reserve' where cell_id = 'e4';
select is(pg_temp.sim('{e1}'), '1 unavailable home-unavailable unheard, 3 granted dead-uncapped w2 13/100', 'a reserve cell is no target');
select is((select count(*) from relay_v1.simulate_outage('{e1,e3}', max_hosts => 3)), 3::bigint, 'bounded');
select is((select array[b.changes, b.leases] from before b),
  array[(select count(*) from relay.change c where c.kind <> 'migration'), (select count(*) from relay.lease)], 'nothing was written');
select is((select p.provolatile::text from pg_proc p where p.proname = 'simulate_outage'), 's', 'nor could be');
select throws_ok($$ select relay_v1.simulate_outage() $$, 'RL001', null, 'no cell is a misuse');
select throws_ok($$ select relay_v1.simulate_outage('{e1,e9}') $$, 'RL001', null, 'so is one that is not registered');
select throws_ok($$ select relay_v1.simulate_outage(region => 'north') $$, 'RL001', null, 'and a region without cells');
select ok(has_function_privilege('relay_operator', 'relay_v1.simulate_outage(text[], text, int)', 'execute')
  and has_function_privilege('relay_monitor', 'relay_v1.simulate_outage(text[], text, int)', 'execute'), 'operators and monitors may ask');
select ok(not has_function_privilege('relay_director', 'relay_v1.simulate_outage(text[], text, int)', 'execute')
  and not has_function_privilege('relay_cell', 'relay_v1.simulate_outage(text[], text, int)', 'execute'), 'processes may not');
select * from finish();
