-- register_cell, heartbeat, cells, regions, cell_orders (02, 03 heartbeats; control-plane 4).
select plan(66);

create function pg_temp.inc(n int) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
create function pg_temp.beat(cell text, load jsonb default '{}', process int default 1, ready boolean default true,
  url text default null, region text default 'here', started interval default '0') returns text language sql as $$
  select relay_v1.heartbeat(cell, coalesce(url, 'https://' || cell), region, pg_temp.inc(process),
    timestamptz '2029-01-01' + make_interval(secs => process) + started, ready,
    '{"enforced_units": 0, "inclusion_watermark": 1}'::jsonb || load)
$$;
create function pg_temp.counts(total int default 3, in_flight int default 2, reserved int default 1, enforced int default 6,
  cap int default 600, bound int default 60) returns jsonb language sql as $$
  select jsonb_build_object('total_connections', total, 'in_flight_connections', in_flight, 'reserved_units', reserved,
    'enforced_units', enforced, 'hard_cap', cap, 'unobserved_bound', bound)
$$;
create function pg_temp.last_change() returns text language sql as $$
  select concat_ws(' ', c.kind, c.to_cell, c.detail ->> 'ready') from relay.change c order by c.id desc limit 1
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');

-- register_cell
select is(relay_v1.register_cell('a', 'https://a', 'here', 900), 'ok', 'a cell is registered');
select is(pg_temp.last_change(), 'cell_registered a', 'and the change is written');
select is((select c.unit_limit from relay.cell c where c.cell_id = 'a'), 900, 'an uncapped cell is limited by its capacity');
select is(relay_v1.register_cell('b', 'https://b', 'there', 900, 600, 60, 'migration-only'), 'ok', 'a capped one');
select is((select c.unit_limit from relay.cell c where c.cell_id = 'b'), 440, 'limited by cap - 100 - bound');
select is(relay_v1.register_cell('b', 'https://b2', 'there', 900, 1000, 60), 'ok', 'registered again with other values');
select is((select array[c.url, c.unit_limit::text, c.admission] from relay.cell c where c.cell_id = 'b'),
  array['https://b2', '840', 'migration-only'], 'it takes them, and keeps its admission');
select is((select count(*) from relay.change c where c.kind = 'cell_registered'), 3::bigint, 'a change each');
select is(relay_v1.register_cell('b', 'https://b2', 'there', 900, 1000, 60), 'ok', 'registered with the same values');
select is((select count(*) from relay.change c where c.kind = 'cell_registered'), 3::bigint, 'is no change');
select is((select count(distinct c.latch) from relay.cell c), 2::bigint, 'each cell has a latch of its own');
select throws_ok($$ select relay_v1.register_cell('c', 'https://c', 'here', 900, 600) $$, '23514', null, 'a cap needs its bound');
select throws_ok($$ select relay_v1.register_cell('c', 'https://c', 'here', 900, 600, 500) $$, '23514', null, 'a bound leaves room for a unit');
select lives_ok($$ select relay_v1.register_cell('c', 'https://c', 'here', 900, 600, 499) $$, 'of one unit at least');
select throws_ok($$ select relay_v1.register_cell('d', 'https://d', 'here', 900, admission => 'open') $$, '23514', null, 'an unknown admission is refused');

set session authorization relay_director;
select set_config('test.answer', relay_v1.register_cell('x', 'https://x', 'here', 900), true);
reset session authorization;
select is(current_setting('test.answer'), 'forbidden', 'who is no operator registers nothing (F10)');
select is((select count(*) from relay.cell c where c.cell_id = 'x'), 0::bigint, 'indeed');
select is((select array[a.who, a.function, a.outcome] from relay.audit a order by a.id desc limit 1),
  array['relay_director', 'register_cell', 'forbidden'], 'and leaves an audit row');
select is((select count(*) from relay.audit a where a.outcome = 'ok'), 5::bigint, 'as every accepted call did');
set session authorization relay_operator;
select set_config('test.answer', relay_v1.register_cell('o', 'https://o', 'elsewhere', 900), true);
reset session authorization;
select is(current_setting('test.answer'), 'ok', 'an operator does');

select is((select count(*) from pg_locks l where l.locktype = 'advisory' and l.classid = relay.latch_space()
  and l.objid = (select c.latch from relay.cell c where c.cell_id = 'o')), 0::bigint, 'a new cell needs no latch');
update relay.cell c set admission = 'existing-only' where c.cell_id = 'o';
select is((select l.mode from pg_locks l where l.locktype = 'advisory' and l.classid = relay.latch_space()
  and l.objid = (select c.latch from relay.cell c where c.cell_id = 'o')), 'ExclusiveLock', 'an update by hand takes it');

-- heartbeat: the checks, in order
select is(pg_temp.beat('nowhere'), 'cell_not_found', '1 an unknown cell');
select is(pg_temp.beat('a', url => 'https://b', region => 'there'), 'cell_origin_mismatch', '2 another origin');
select is(pg_temp.beat('a', region => 'there'), 'cell_region_mismatch', '3 another region');
select is(pg_temp.beat('a', process => 5), 'ok', 'accepted');
select is(pg_temp.last_change(), 'incarnation a true', 'a first process is a change');
select is(pg_temp.beat('a', process => 5), 'ok', 'and again');
select is((select count(*) from relay.change c where c.kind = 'incarnation'), 1::bigint, 'which is none');
select is(pg_temp.beat('a', process => 5, started => '1 s'), 'stale_cell_incarnation', '4 the same process with another start');
select is(pg_temp.beat('a', process => 4), 'stale_cell_incarnation', '4 an older process (S22)');
select is(pg_temp.beat('a', process => 4, started => '1 s'), 'stale_cell_incarnation', '4 another process that started at the same moment');
select is(pg_temp.beat('a', process => 6), 'ok', 'a newer process');
select is(pg_temp.beat('a', process => 5), 'stale_cell_incarnation', '4 the old one is done');
select is(pg_temp.beat('a', pg_temp.counts(), process => 6), 'cell_connection_limit_not_configured', '5 counts from an uncapped cell');
select is(pg_temp.beat('a', '{"hard_cap": 600}', process => 6), 'cell_connection_limit_not_configured', '5 one of them');
select is(pg_temp.beat('c'), 'cell_connection_telemetry_mismatch', '5 no counts from a capped cell');
select is(pg_temp.beat('c', pg_temp.counts(bound => 499)), 'ok', 'with all of them');
select is(pg_temp.beat('c', pg_temp.counts(bound => 499, enforced => 7)), 'cell_connection_telemetry_mismatch', '5 a sum that is wrong');
select is(pg_temp.beat('c', pg_temp.counts(bound => 499, cap => 1000)), 'cell_connection_telemetry_mismatch', '5 another cap');
select is(pg_temp.beat('c', pg_temp.counts()), 'cell_connection_telemetry_mismatch', '5 another bound');
select is(pg_temp.beat('c', pg_temp.counts(bound => 499) - 'reserved_units'), 'cell_connection_telemetry_mismatch', '5 a count that is missing');
select is(pg_temp.beat('a', '{"inclusion_watermark": 7}', process => 6), 'ok', 'a higher watermark');
select is(pg_temp.beat('a', '{"inclusion_watermark": 7}', process => 6), 'ok', 'the same');
select is(pg_temp.beat('a', '{"inclusion_watermark": 6}', process => 6), 'stale_connection_snapshot', '6 a lower one');
select is((select r.inclusion_watermark from relay.cell_runtime r where r.cell_id = 'a'), 7::bigint, 'a refused beat writes nothing');
select is(pg_temp.beat('a', '{"inclusion_watermark": 0}', process => 7), 'ok', 'a new process begins where it likes');
select throws_ok($$ select pg_temp.beat('a', '{"inclusion_watermark": null}', process => 7) $$, 'RL001', null, 'no watermark is a misuse');
select throws_ok($$ select pg_temp.beat('a', '{"enforced_units": null}', process => 7) $$, 'RL001', null, 'so are no units');
select is(pg_temp.beat('a', ready => false, process => 7), 'ok', 'not ready any more');
select is(pg_temp.last_change(), 'incarnation a false', 'is a change');

-- cells, regions, cell_orders
select test_clock.advance('2 s');
select is(pg_temp.beat('a', '{"enforced_units": 5}', process => 7), 'ok', 'ready again');
select test_clock.advance('1 s');
select is((select array[f.heard_age_ms, f.enforced_units, f.ready::int, f.draining::int] from relay_v1.cells() f where f.cell_id = 'a'),
  array[1000, 5, 1, 0]::bigint[], 'cells shows the last heartbeat');
select is((select f.heard_age_ms from relay_v1.cells() f where f.cell_id = 'b'), null, 'and cells that were never heard');
select is((select jsonb_agg(g) from relay_v1.regions() g), '[{"region": "here", "probe_origins": ["https://a", "https://c"]}]',
  'regions lists those with a live general cell, and two origins at most');
select test_clock.advance('41.999 s');
select is((select g.probe_origins from relay_v1.regions() g), array['https://a', 'https://c'], 'a cell heard 44.999 s ago is live');
select test_clock.advance('1 ms');
select is((select g.probe_origins from relay_v1.regions() g), array['https://a'], 'and 45 s ago it is not');
update relay.cell c set admit_mode = 'reserve' where c.cell_id = 'a';
select is((select g.probe_origins from relay_v1.regions() g), array['https://a'], 'a reserve cell takes hosts by a booking: its region is one of them');
update relay.cell c set admission = 'migration-only', roll_isolated_at = relay.now() - interval '2 h' + interval '1 ms' where c.cell_id = 'a';
select is_empty($$ select relay_v1.regions() $$, 'but not one that takes no new hosts');
select is((select f.rolling from relay_v1.cells() f where f.cell_id = 'a'), true, 'cells shows what is set apart for a roll');
select test_clock.advance('1 ms');
select is((select f.rolling from relay_v1.cells() f where f.cell_id = 'a'), false, 'for 2 h');
update relay.cell c set admission = 'general', roll_isolated_at = null where c.cell_id = 'a';
select is(pg_temp.beat('a', '{"director_contact_ms": 1500}', process => 7), 'ok', 'a beat says when a director last polled the process');
select is((select relay.now() - r.director_seen_at from relay.cell_runtime r where r.cell_id = 'a'), interval '1500 ms', 'by the database''s clock');
update relay.cell c set admit_mode = 'db' where c.cell_id = 'a';
update relay.cell c set drain_incarnation = pg_temp.inc(7), drain_grace_ms = 1, drain_pace_ms = 2 where c.cell_id = 'a';
select is((select o.drain from relay_v1.cell_orders('a', pg_temp.inc(7)) o), jsonb_build_object('grace_ms', 1, 'pace_ms', 2, 'incarnation', pg_temp.inc(7), 'ordered_at', null),
  'a drain order names its process');
select is((select row(o.*)::text from relay_v1.cell_orders('a', pg_temp.inc(8)) o), '(general,db,{},0,)', 'another process has none');
select is_empty($$ select relay_v1.cell_orders('nowhere', pg_temp.inc(1)) $$, 'and an unknown cell no orders');
select * from finish();
