-- start_drain, cancel_drain, what a cell hears of them, view drains, and what rule 5 opens (03, drains; issue: drains).
select plan(69);

create function pg_temp.inc(n int default 1) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
create function pg_temp.beat(cell text, process int default 1, more jsonb default '{}', ready boolean default true) returns text language sql as $$
  select relay_v1.heartbeat(cell, 'https://' || cell, 'here', pg_temp.inc(process), timestamptz '2029-01-01' + make_interval(secs => process),
    ready, '{"enforced_units": 0, "inclusion_watermark": 1}'::jsonb || more)
$$;
create function pg_temp.seat(host text, cell text default 'x', epoch bigint default 4, state text default 'active') returns void language sql as $$
  insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at) values ('user', host, cell, epoch, relay.now());
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, incarnation, generation, inclusion_watermark, state, units, expires_at)
  select 'user', host, cell, epoch, i.u, i.n, i.n, state, 1, relay.now() + interval '105 s'
  from (values (case when state = 'active' then pg_temp.inc() end, case when state = 'active' then 1 end)) i (u, n)
  where state <> 'none'
$$;
create function pg_temp.ask(host text, by text default 'host') returns text language sql as $$
  select concat_ws(' ', r.outcome, r.rule, r.cause, r.cell_id, r.epoch) from relay_v1.assign('user', host, requested_by => by) r
$$;
create function pg_temp.activate(host text, cell text, epoch bigint) returns text language sql as $$
  select r.outcome from relay_v1.activate_control('user', host, cell, pg_temp.inc(), epoch, 1, 2) r
$$;
create function pg_temp.release(host text, cell text, epoch bigint, generation bigint default 1) returns text language sql as $$
  select relay_v1.release_lease('user', host, cell, pg_temp.inc(), epoch, generation)
$$;
create function pg_temp.leases(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', l.cell_id, l.state, l.epoch), ', ' order by l.cell_id) from relay.lease l where l.relay_host_id = host
$$;
create function pg_temp.migration(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', m.source_cell, m.target_cell, m.epoch, case when m.pinned_at is not null then 'pinned' end,
    case when m.registered_at is not null then 'registered' end, case when m.completed_at is not null then 'completed' end,
    case when m.aborted_at is not null then 'aborted' end), ', ' order by m.epoch)
  from relay.migration m where m.relay_host_id = host
$$;
create function pg_temp.told(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', c.from_cell, c.to_cell, c.epoch, c.detail ->> 'state'), ', ' order by c.id)
  from relay.change c where c.relay_host_id = host and c.kind = 'migration'
$$;
create function pg_temp.last_drain() returns text language sql as $$
  select concat_ws(' ', c.to_cell, c.detail ->> 'state', c.detail ->> 'grace_ms', c.detail ->> 'pace_ms') from relay.change c
  where c.kind = 'drain' order by c.id desc limit 1
$$;
create function pg_temp.last_audit() returns text language sql as $$
  select concat_ws(' ', a.function, a.outcome) from relay.audit a order by a.id desc limit 1
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'here', 100) from unnest(array['x', 'y', 'silent']) n;
select pg_temp.beat(n) from unnest(array['x', 'y']) n;

-- start_drain: refusals
select is(relay_v1.start_drain('nowhere'), 'cell_not_found', 'no such cell');
select is(relay_v1.start_drain('x'), 'drain_attempt_admission_enabled', 'a general cell is not drained');
select is(pg_temp.last_audit(), 'start_drain drain_attempt_admission_enabled', 'which is audited');
update relay.cell c set admission = 'existing-only' where c.cell_id = 'silent';
select is(relay_v1.start_drain('silent'), 'source_cell_unavailable', 'nor one that was never heard: no process to name');
update relay.cell c set admission = 'existing-only', admit_mode = 'reserve' where c.cell_id = 'x';
select is(relay_v1.start_drain('x'), 'cell_in_reserve_mode', 'nor one in reserve mode');
update relay.cell c set admission = 'migration-only', roll_isolated_at = relay.now() - interval '2 hours' where c.cell_id = 'x';
select is(relay_v1.start_drain('x'), 'cell_in_reserve_mode', 'whose roll stamp is 2 h old');
update relay.cell c set roll_isolated_at = relay.now() - interval '2 hours' + interval '1 ms' where c.cell_id = 'x';
select is(relay_v1.start_drain('x'), 'ok', 'but while it is set apart for a roll');
update relay.cell c set roll_isolated_at = null, admit_mode = 'db' where c.cell_id = 'x';
select is(relay_v1.cancel_drain('x'), 'ok', 'cancelled');
select is(pg_temp.last_drain(), 'x cancelled', 'is a change');
select is(relay_v1.cancel_drain('x'), 'drain_attempt_not_found', 'there is nothing left to cancel');
select is(relay_v1.cancel_drain('nowhere'), 'cell_not_found', 'nor on a cell that is none');
select throws_ok($$ select relay_v1.start_drain('x', -1) $$, 'RL001', null, 'a grace below 0 is a misuse');
select throws_ok($$ select relay_v1.start_drain('x', 3600001) $$, 'RL001', null, 'one above 1 h too');
select throws_ok($$ select relay_v1.start_drain('x', 0, 1200001) $$, 'RL001', null, 'and a pace above 20 min');
select throws_ok($$ select relay_v1.start_drain('x', null) $$, 'RL001', null, 'and none');
set session authorization relay_cell;
select set_config('test.answers', relay_v1.start_drain('x') || ' ' || relay_v1.cancel_drain('x'), true);
reset session authorization;
select is(current_setting('test.answers'), 'forbidden forbidden', 'who is no operator drains nothing (F10)');
select is((select string_agg(a.function, ' ' order by a.id) from relay.audit a where a.outcome = 'forbidden'), 'start_drain cancel_drain', 'and leaves audit rows');

-- the order
select pg_temp.seat('h'), pg_temp.seat('on-its-way', state => 'granted'), pg_temp.seat('away', state => 'none'), pg_temp.seat('elsewhere', 'y');
select is(relay_v1.start_drain('x', 300000, 1000), 'ok', 'drain');
select is(pg_temp.last_drain(), 'x ordered 300000 1000', 'is a change');
select is(pg_temp.last_audit(), 'start_drain ok', 'and audited');
select is((select o.drain from relay_v1.cell_orders('x', pg_temp.inc()) o), jsonb_build_object('grace_ms', 300000, 'pace_ms', 1000,
  'incarnation', pg_temp.inc(), 'ordered_at', (extract(epoch from relay.now()) * 1000)::bigint), 'the process hears it');
select is((select o.drain from relay_v1.cell_orders('x', pg_temp.inc(2)) o), null, 'another process does not');
select is((select r.ready from relay.cell_runtime r where r.cell_id = 'x'), true, 'it is as ready as before');
select is(array[d.hosts, d.seated, d.promised, d.retiring], array[2, 1, 1, 0], 'view drains: two hosts to let go') from relay_v1.drains d;
select is(array[d.current::text, d.progress::text, d.told::text, d."left"::text], array['true', '0.000', null, null], 'none told yet') from relay_v1.drains d;
select pg_temp.beat('x', more => '{"drain_told": 1, "drain_left": 2}');
select is(array[d.told, d."left"], array[1, 2], 'what was told the process says with its heartbeat') from relay_v1.drains d;
select test_clock.advance('1 s');
select is(relay_v1.start_drain('x', 300000, 2000), 'ok', 'a second order');
select is((select o.drain -> 'ordered_at' from relay_v1.cell_orders('x', pg_temp.inc()) o), to_jsonb((extract(epoch from relay.now()) * 1000)::bigint), 'takes the place of the first, and shows it');

-- rule 5 opens a pinned migration (S19)
select is(pg_temp.ask('h'), 'granted draining-home y 5', 'S19 a host that was told asks, and is moved');
select is(pg_temp.leases('h'), 'x retiring 4, y granted 5', 'S19 its old seat retires');
select is((select array[l.retire_until, l.expires_at] from relay.lease l where l.relay_host_id = 'h' and l.cell_id = 'x'),
  array_fill(relay.now() + interval '300 s', array[2]), 'S19 for the grace of the drain, though that is longer than a lease');
select is(pg_temp.migration('h'), 'x y 5 pinned', 'S19 the migration is pinned');
select is((select array[m.source_incarnation::text, (m.expires_at - m.opened_at)::text] from relay.migration m), array[pg_temp.inc()::text, '00:15:00'], 'and names the process that it leaves');
select is(array[d.seated, d.promised, d.retiring, (d.progress * 10)::int], array[0, 1, 1, 5], 'half of the drain is done') from relay_v1.drains d;
select is((select array[v.source_lease, v.target_lease, v.next_step, v.pinned::text, v.registered::text] from relay_v1.open_migrations v),
  array['retiring', 'granted', 'wait', 'true', 'false'], 'view open_migrations');
select is(pg_temp.activate('h', 'x', 5), 'wrong_cell', 'S19 the source serves no epoch but its own');
select is(pg_temp.activate('h', 'y', 5), 'active', 'S19 it attaches on the target');
select is(pg_temp.migration('h'), 'x y 5 pinned registered', 'S19 which marks it registered,');
select is((select m.target_incarnation from relay.migration m), pg_temp.inc(), 'with the process it is on');
select is(relay_v1.sweep_migrations(), 0, 'S19 but it is not complete before the source is done');
select is(pg_temp.activate('h', 'y', 5), 'active', 'attached again');
select is(pg_temp.migration('h'), 'x y 5 pinned registered', 'is the same');
select is(pg_temp.release('h', 'x', 5), 'not_held', 'a release of another epoch ends nothing');
select is(pg_temp.release('h', 'x', 4), 'released', 'S19 the old seat is gone (4503)');
select is(pg_temp.migration('h'), 'x y 5 pinned registered completed', 'S19 complete');
select is(pg_temp.told('h'), 'x y 5 opened, x y 5 completed', 'and told');
select is((select a.cell_id || ' ' || a.epoch from relay.assignment a where a.relay_host_id = 'h'), 'y 5', 'S19 the row ends at epoch + 1');
select is_empty($$ select from relay_v1.open_migrations $$, 'none is open');
select is(pg_temp.ask('on-its-way', 'resolve'), 'granted sticky x 4', 'a phone moves nobody off a draining cell (P3)');

-- the old seat goes first
select pg_temp.seat('early');
select is(pg_temp.ask('early'), 'granted draining-home y 5', 'another one');
select is(pg_temp.release('early', 'x', 4), 'released', 'leaves its old seat first');
select is(pg_temp.migration('early'), 'x y 5 pinned', 'is not complete yet');
select is(pg_temp.activate('early', 'y', 5), 'active', 'attached on the target');
select is(pg_temp.migration('early'), 'x y 5 pinned registered completed', 'it is');

-- a move overtakes
select pg_temp.seat('twice');
select is(pg_temp.ask('twice'), 'granted draining-home y 5', 'a third');
update relay.cell c set admission = 'general', drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null, drain_ordered_at = null,
  drain_hosts = null where c.cell_id = 'x';
update relay.cell c set admission = 'migration-only' where c.cell_id = 'y';
select is(relay_v1.start_drain('y', 0, 0), 'ok', 'the target drains too');
select is(pg_temp.ask('twice'), 'granted draining-home x 6', 'it asks again and is moved back');
select is(pg_temp.migration('twice'), 'x y 5 pinned aborted, y x 6 pinned', 'the older migration is aborted in the same transaction');
select is(pg_temp.told('twice'), 'x y 5 opened, x y 5 aborted, y x 6 opened', 'and told');
select is(pg_temp.leases('twice'), 'x granted 6, y retiring 5', 'a grant replaces the retiring lease of its cell');

-- start_drain pins what is open
update relay.migration m set pinned_at = null where m.relay_host_id = 'twice' and m.epoch = 6;
select is(relay_v1.start_drain('y', 0, 0), 'ok', 'a drain with an open migration off the cell');
select is(pg_temp.migration('twice'), 'x y 5 pinned aborted, y x 6 pinned', 'pins it');
update relay.migration m set source_incarnation = pg_temp.inc(7) where m.relay_host_id = 'twice';
select is(relay_v1.start_drain('y', 0, 0), 'ok', 'one that is pinned already may be of an older process');
update relay.migration m set pinned_at = null where m.relay_host_id = 'twice' and m.epoch = 6;
select is(relay_v1.start_drain('y', 0, 0), 'drain_migration_source_incarnation_mismatch', 'one that is not may not');

-- another process: nobody comes back to it with a seat that retires
select is(relay.load('y', relay.now()), 2, 'a promise that was taken back does not count');
update relay.lease l set incarnation = pg_temp.inc(), generation = 1, inclusion_watermark = 9 where l.cell_id = 'y' and l.state = 'retiring';
select is(relay.load('y', relay.now()), 3, 'a seat that retires and that no heartbeat has shown yet does');
select is(pg_temp.beat('y', process => 2, more => '{"drain_told": 9, "drain_left": 9}'), 'ok', 'the process is replaced');
select is(relay.load('y', relay.now()), 3, 'but not on the new one, to which only the three that were seated may come back');
select is(array[d.current::text, d.told::text], array['false', null], 'the order is not for the new one') from relay_v1.drains d where d.cell_id = 'y';
select * from finish();
