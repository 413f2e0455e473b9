-- sweep_dead_cells (03, sweeps): rule 12 alone, in random order, at most 15 % of a cell's hosts a pass (F1, 22).
select plan(24);

create function pg_temp.inc(n int default 1) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
create function pg_temp.beat(cell text, units int default 0) returns text language sql as $$
  select relay_v1.heartbeat(c.cell_id, c.url, c.region, pg_temp.inc(), '2029-01-01', true,
    jsonb_build_object('enforced_units', units, 'inclusion_watermark', 1) || case when c.connection_hard_cap is null then '{}'
      else jsonb_build_object('total_connections', units, 'in_flight_connections', 0, 'reserved_units', 0,
        'hard_cap', c.connection_hard_cap, 'unobserved_bound', c.connection_unobserved_bound) end)
  from relay.cell c where c.cell_id = cell
$$;
create function pg_temp.fence(cell text) returns text language plpgsql as $$
declare
  v uuid;
begin
  update relay.cell c set admission = 'existing-only' where c.cell_id = cell;
  v := (relay_v1.fence_begin(cell, pg_temp.inc(), 'op ' || cell, 'gone')).attempt_id;
  return relay_v1.fence_start(v) || ' ' || relay_v1.fence_commit(v);
end $$;
create function pg_temp.hosts(cell text) returns int language sql as $$ select count(*)::int from relay.assignment a where a.cell_id = cell $$;
create function pg_temp.moved() returns text language sql as $$
  select string_agg(a.relay_host_id, ' ' order by a.relay_host_id) from relay.assignment a where a.cell_id = 'y'
$$;
-- Which hosts a pass moves, undone.
create function pg_temp.drawn() returns text language plpgsql as $$
declare
  v text;
begin
  perform relay_v1.sweep_dead_cells();
  v := pg_temp.moved();
  raise exception 'undo';
exception when raise_exception then
  return v;
end $$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'here', 900, 600, 60) from unnest(array['x', 'z']) n;
select relay_v1.register_cell(n, 'https://' || n, 'here', 1000) from unnest(array['y', 'uncapped', 'reserve']) n;
select pg_temp.beat(n) from unnest(array['x', 'y', 'z', 'uncapped', 'reserve']) n;
update relay.cell c set admit_mode = 'reserve', admission = 'existing-only' where c.cell_id = 'reserve';
insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
select 'user', c || lpad(n::text, 2, '0'), c, 4, relay.now()
from (values ('x', 20), ('z', 10), ('uncapped', 10), ('reserve', 10)) v (c, size), generate_series(1, size) n;
insert into relay.lease (user_id, relay_host_id, cell_id, epoch, incarnation, generation, inclusion_watermark, state, units, expires_at)
select 'user', a.relay_host_id, 'x', 4, pg_temp.inc(), 1, 1, 'active', 1, relay.now() + interval '1 hour'
from relay.assignment a where a.cell_id = 'x';

select is(relay_v1.sweep_dead_cells(), 0, 'nobody is dead');
select test_clock.advance('45 s');
select pg_temp.beat('y');
select is(relay_v1.sweep_dead_cells(), 0, 'F1 a silence alone moves nobody, from no kind of cell (22)');
select test_clock.advance('60 s');
select pg_temp.beat('y');
select is(relay_v1.sweep_dead_cells(), 0, 'F1 nor when silences are judged: only a host that asks leaves an unfenced cell (P3)');
-- without one in reserve mode, a move mints the very next epoch
update relay.cell c set admit_mode = 'db' where c.cell_id = 'reserve';
select is(pg_temp.fence('x'), 'ok ok', 'x is fenced');
select isnt(pg_temp.drawn() || pg_temp.drawn(), repeat(pg_temp.drawn(), 2), 'in random order');
select is(relay_v1.sweep_dead_cells(), 3, 'F1 then its hosts are moved');
select is(array[pg_temp.hosts('x'), pg_temp.hosts('y')], array[17, 3], '15 % of them');
select is((select string_agg(distinct concat_ws(' ', c.from_cell, c.to_cell, c.epoch, c.rule, c.detail ->> 'forced'), ', ') from relay.change c where c.kind = 'moved'),
  'x y 5 fenced true', 'by rule 12');
select is((select string_agg(distinct l.cell_id || ' ' || l.state || ' ' || l.epoch, ', ') from relay.lease l join relay.assignment a using (user_id, relay_host_id) where a.cell_id = 'y'),
  'y granted 5', 'what they held is gone, and each is promised a seat');
select is(relay_v1.sweep_dead_cells(), 3, 'the next pass: 15 % of 17, rounded up');
select is(relay_v1.sweep_dead_cells(max_rows => 2), 2, 'a pass is limited');
select is(pg_temp.hosts('x'), 12, 'so many are left');
select is(array[pg_temp.hosts('z'), pg_temp.hosts('uncapped'), pg_temp.hosts('reserve')], array[10, 10, 10], 'no other cell is touched (22)');
select is(pg_temp.fence('z'), 'ok ok', 'a second cell is fenced');
select is(relay_v1.sweep_dead_cells(max_rows => 100), 4, 'both are swept: 15 % of 12 and of 10');
select is(array[pg_temp.hosts('x'), pg_temp.hosts('z')], array[10, 8], 'each');
select is(relay_v1.sweep_dead_cells(max_rows => 3), 3, 'with a limit over all of them');
select test_clock.advance('5 min');
select pg_temp.beat('y');
select is(relay_v1.sweep_dead_cells(), 0, 'a fence that has expired moves nobody');
select is(pg_temp.fence('x'), 'ok ok', 'renewed');
update relay.cell c set capacity_units = 1 where c.cell_id = 'y';
select is(relay_v1.sweep_dead_cells(), 1, 'the last room is given,');
select is(relay_v1.sweep_dead_cells(), 0, 'and without room in the fleet the pass ends');
update relay.cell c set capacity_units = 1000 where c.cell_id = 'y';
select relay_v1.sweep_dead_cells() from generate_series(1, 10);
select is(pg_temp.hosts('x'), 0, 'pass by pass x is emptied');
select is(array[pg_temp.hosts('uncapped'), pg_temp.hosts('reserve')], array[10, 10], 'and no other cell');
-- a silence that may be judged lets hosts that ask leave an uncapped cell; a sweep goes by the fence
select test_clock.advance('15 s'), pg_temp.beat('y') from generate_series(1, 5);
select pg_temp.fence('uncapped'), relay_v1.sweep_dead_cells();
select is((select string_agg(distinct c.rule, ' ') from relay.change c where c.kind = 'moved' and c.from_cell = 'uncapped'), 'fenced', 'by the fence, and no other rule');
select * from finish();
