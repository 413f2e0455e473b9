-- set_admission, isolate_for_roll, restore_after_roll, retire_cell: what a cell takes, rolls, its end (control-plane 5.1).
\ir helpers/fleet.sql
select plan(46);

create function pg_temp.state(cell text) returns text language sql as $$
  select concat_ws(' ', c.admission, c.admission_generation, case when c.roll_isolated_at is not null then
    'stamped ' || extract(epoch from relay.now() - c.roll_isolated_at)::int end) from relay.cell c where c.cell_id = cell
$$;
create function pg_temp.last_audit() returns text language sql as $$
  select concat_ws(' ', a.function, a.outcome) from relay.audit a order by a.id desc limit 1
$$;
create function pg_temp.last_change() returns text language sql as $$
  select concat_ws(' ', c.kind, c.to_cell, c.detail ->> 'from', c.detail ->> 'to', c.detail ->> 'generation')
  from relay.change c order by c.id desc limit 1
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'here', 100) from unnest(array['x', 'y']) n;
select pg_temp.beat(n) from unnest(array['x', 'y']) n;

-- set_admission
select is(relay_v1.set_admission('nowhere', 'general'), 'cell_not_found', 'no such cell');
select throws_ok($$ select relay_v1.set_admission('x', 'open') $$, 'RL001', null, 'no such admission');
select throws_ok($$ select relay_v1.set_admission('x', null) $$, 'RL001', null, 'none at all');
select is(relay_v1.set_admission('x', 'general'), 'ok', 'the same again is fine');
select is(pg_temp.state('x'), 'general 0', 'and changes nothing');
select is(relay_v1.set_admission('x', 'existing-only', 0), 'ok', 'to be emptied');
select is(pg_temp.state('x'), 'existing-only 1', 'with the next generation');
select is(pg_temp.last_change(), 'admission x general existing-only 1', 'and a change that says so');
select is(relay_v1.set_admission('x', 'general', 0), 'admission_selector_generation_mismatch', 'who read the old generation is refused');
select is(pg_temp.last_audit(), 'set_admission admission_selector_generation_mismatch', 'which is audited');
select is(relay_v1.set_admission('x', 'general', 1), 'ok', 'who read the new one is not');
select is(relay_v1.set_admission('x', 'migration-only'), 'ok', 'without a generation nobody is asked');
select is(pg_temp.state('x'), 'migration-only 3', 'by hand there is no stamp');

-- a roll
select is(relay_v1.isolate_for_roll('nowhere'), 'cell_not_found', 'no such cell to isolate');
select is(relay_v1.isolate_for_roll('y', 7), 'admission_selector_generation_mismatch', 'nor one of another generation');
select is(relay_v1.isolate_for_roll('y', 0), 'ok', 'isolated');
select is(pg_temp.state('y'), 'migration-only 1 stamped 0', 'with a stamp');
select test_clock.advance('10 min');
select pg_temp.beat(n) from unnest(array['x', 'y']) n;
select is(relay_v1.isolate_for_roll('y'), 'ok', 'isolated again');
select is(pg_temp.state('y'), 'migration-only 1 stamped 600', 'keeps the first stamp');
select is(relay_v1.set_admission('y', 'migration-only'), 'ok', 'migration-only by hand');
select is(pg_temp.state('y'), 'migration-only 1 stamped 600', 'keeps it too');
select test_clock.advance('1:49:59.999');
select relay_v1.isolate_for_roll('y');
select is(pg_temp.state('y'), 'migration-only 1 stamped 7200', 'and keeps it for 2 h');
select test_clock.advance('1 ms');
select relay_v1.isolate_for_roll('y');
select is(pg_temp.state('y'), 'migration-only 2 stamped 0', 'a stamp that means nothing any more is replaced');
select pg_temp.beat(n) from unnest(array['x', 'y']) n;
select is(relay_v1.isolate_for_roll('x'), 'ok', 'a migration-only cell without stamp is isolated');
select is(pg_temp.state('x'), 'migration-only 4 stamped 0', 'and gets one');
select is(relay_v1.start_drain('y', 1000, 1000), 'ok', 'its process is told to drain');
select is(relay_v1.set_admission('y', 'general'), 'cell_has_open_drain', 'a cell that drains takes no new hosts');
select is(relay_v1.restore_after_roll('y', 7), 'admission_selector_generation_mismatch', 'the roll is ended by who read the generation');
select is(relay_v1.restore_after_roll('y', 2), 'ok', 'it is over');
select is(pg_temp.state('y'), 'general 3', 'general, without a stamp');
select is((select cell.drain_incarnation from relay.cell where cell_id = 'y'), null, 'and without a drain order');
select is((select count(*) from relay.change c where c.kind = 'drain' and c.to_cell = 'y' and c.detail ->> 'state' = 'cancelled'), 1::bigint, 'which the process hears');
select is(relay_v1.restore_after_roll('y'), 'cell_not_isolated', 'there is no roll to end any more');
select relay_v1.set_admission('y', 'existing-only');
select is(relay_v1.isolate_for_roll('y'), 'admission_selector_legacy_reenable', 'a roll would open a cell that is being emptied');
select relay_v1.set_admission('x', 'existing-only');
select is(pg_temp.state('x'), 'existing-only 5', 'the stamp goes with another admission');

-- retire_cell
select is(relay_v1.retire_cell('nowhere'), 'cell_not_found', 'no such cell to forget');
select relay_v1.set_admission('x', 'general');
select is(relay_v1.retire_cell('x'), 'cell_admission_enabled', 'one that takes hosts is kept');
select relay_v1.set_admission('x', 'existing-only');
select is(relay_v1.retire_cell('x'), 'cell_still_heard', 'one whose process runs');
select pg_temp.seat('h1', 'x', active => '23:59:59');
select test_clock.advance('45 s');
select pg_temp.seat('h2', 'x');
select is(relay_v1.retire_cell('x'), 'cell_has_hosts', 'one with a host');
update relay.assignment a set last_activity_at = relay.now() - interval '24 hours' where a.relay_host_id = 'h2';
select pg_temp.hold('h2', 'x');
select is(relay_v1.retire_cell('x'), 'cell_has_hosts', 'or with a lease');
delete from relay.lease;
select pg_temp.migrate('h2', 'x', 'y');
select is(relay_v1.retire_cell('x'), 'cell_has_open_migration', 'or that a host is leaving');
update relay.migration m set aborted_at = relay.now();
select is(relay_v1.retire_cell('x'), 'ok', 'hosts that were idle for 24 h do not hold it');
select is((select count(*) from relay.cell where cell_id = 'x') + (select count(*) from relay.cell_runtime where cell_id = 'x'), 0::bigint, 'it is forgotten');
select is((select c.kind || ' ' || c.to_cell from relay.change c order by c.id desc limit 1), 'cell_retired x', 'and said so');

set session authorization relay_cell;
select set_config('test.answers', concat_ws(' ', relay_v1.set_admission('y', 'general'), relay_v1.isolate_for_roll('y'),
  relay_v1.restore_after_roll('y'), relay_v1.retire_cell('y')), true);
reset session authorization;
select is(current_setting('test.answers'), 'forbidden forbidden forbidden forbidden', 'who is no operator is answered so (F10)');
select is((select count(*) from relay.audit a where a.who = 'relay_cell' and a.outcome = 'forbidden'), 4::bigint, 'and written down');

select * from finish();
