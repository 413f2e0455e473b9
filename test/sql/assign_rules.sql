-- assign: each row of the decision table in 03 that db mode has: 1, 2, 7, 8, 9, 11, 14. A test names its row; each
-- condition of a row has a case that differs in it alone.
select plan(99);

create function pg_temp.beat(cell text, units int default 0, ready boolean default true) returns text language sql as $$
  select relay_v1.heartbeat(c.cell_id, c.url, c.region, lpad('1', 32, '0')::uuid, '2029-01-01', ready,
    jsonb_build_object('enforced_units', units, 'inclusion_watermark', 1) || case when c.connection_hard_cap is null then '{}'
      else jsonb_build_object('total_connections', units, 'in_flight_connections', 0, 'reserved_units', 0,
        'hard_cap', c.connection_hard_cap, 'unobserved_bound', c.connection_unobserved_bound) end)
  from relay.cell c where c.cell_id = cell
$$;
-- Lets time pass while the named cells live, so that silences may be judged.
create function pg_temp.live_on(seconds int, variadic cells text[]) returns text language plpgsql as $$
begin
  for s in 1 .. seconds loop
    perform test_clock.advance('1 s');
    if s % 15 = 0 or s = seconds then
      perform pg_temp.beat(x) from unnest(cells) x;
    end if;
  end loop;
  return null;
end $$;
create function pg_temp.ask(host text, by text default 'host', region text default null, place boolean default true)
returns text language sql as $$
  select concat_ws(' ', r.outcome, r.rule, r.cause, r.cell_id, r.epoch, case when r.moved then 'from ' || r.from_cell_id end)
  from relay_v1.assign('user', host, region, by, place => place) r
$$;
create function pg_temp.seat(host text, cell text, epoch bigint default 4) returns void language sql as $$
  insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
  values ('user', host, cell, epoch, relay.now())
$$;
create function pg_temp.hold(host text, cell text, epoch bigint default 4, state text default 'active',
  life interval default '105 s') returns void language sql as $$
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, state, units, expires_at, incarnation, generation,
    inclusion_watermark, retire_until)
  select 'user', host, cell, epoch, state, 1, relay.now() + life, i.u, i.g, i.g,
    case when state = 'retiring' then relay.now() + interval '60 s' end
  from (values (case when state <> 'granted' then lpad('1', 32, '0')::uuid end, case when state <> 'granted' then 1 end)) i (u, g)
$$;
create function pg_temp.leases(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', l.cell_id, l.state, l.epoch), ', ' order by l.cell_id) from relay.lease l where l.relay_host_id = host
$$;
create function pg_temp.changes(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', c.kind, c.from_cell, c.to_cell, c.epoch, c.rule), ', ' order by c.id) from relay.change c where c.relay_host_id = host
$$;
create function pg_temp.home(host text) returns text language sql as $$
  select a.cell_id || ' ' || a.epoch from relay.assignment a where a.relay_host_id = host
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
-- x: the home; y: the only target; full: general, live, without room; keep, empty: not general
insert into relay.cell (cell_id, url, region, admission, capacity_units, registered_at)
select n, 'https://' || n, r, a, u, relay.now()
from (values ('x', 'east', 'general', 100), ('y', 'west', 'general', 1000), ('full', 'east', 'general', 10),
  ('keep', 'east', 'migration-only', 10), ('empty', 'east', 'existing-only', 10)) v (n, r, a, u);
insert into relay.cell (cell_id, url, region, capacity_units, connection_hard_cap, connection_unobserved_bound, registered_at)
values ('capped', 'https://capped', 'east', 900, 600, 60, relay.now());
select pg_temp.beat(c) from unnest(array['x', 'y']) c;
select pg_temp.beat(c, 10) from unnest(array['full', 'keep', 'empty']) c;
select pg_temp.beat('capped', 440);

-- 1 new
select is(pg_temp.ask('new', region => 'east', place => false), 'would_place new', '1 asked not to place');
select is(pg_temp.home('new'), null, '1 nothing is written then');
select is(pg_temp.ask('new', region => 'east'), 'granted new x 1', '1 a new host is placed in its region at epoch 1');
select is(pg_temp.home('new'), 'x 1', '1 the row');
select is(pg_temp.leases('new'), 'x granted 1', '1 the lease');
select is(pg_temp.changes('new'), 'placed x 1 new', '1 the change');
select is((select a.preferred_region from relay.assignment a where a.relay_host_id = 'new'), 'east', '1 the region it asked for is kept');
select is((select a.unattached_since from relay.assignment a where a.relay_host_id = 'new'), relay.now(), '1 not attached from now on');
select is((select l.expires_at from relay.lease l where l.relay_host_id = 'new'), relay.now() + interval '90 s', '1 for 90 s');
select is(pg_temp.ask('by-resolve', 'resolve', 'west'), 'granted new y 1', '1 a phone places a host that has no row');
select is(pg_temp.leases('by-resolve'), 'y granted 1', '1 with a lease for the host');
select is(pg_temp.ask('by-invite', 'invite', 'west'), 'granted new y 1', '1 so does an invite');
select is(pg_temp.ask('by-sweep', 'sweep'), 'unavailable home-unavailable booting', '1 a sweep does not');
select is(pg_temp.ask('by-operator', 'operator'), 'unavailable home-unavailable booting', '1 nor an operator');
select is(pg_temp.ask('nowhere', region => 'south') ~ '^granted new [xy] 1$', true, '1 a region without cells: any');
select throws_ok($$ select pg_temp.ask('new', 'nobody') $$, 'RL001', null, 'an unknown caller is a misuse');
select throws_ok($$ select relay_v1.assign(null, 'new') $$, 'RL001', null, 'so is no user');

-- 7 sticky
select pg_temp.seat('holds', 'x'), pg_temp.hold('holds', 'x');
select is(pg_temp.ask('holds'), 'granted sticky x 4', '7 a host that holds its lease is kept');
select is((select r.lease_expires_at from relay_v1.assign('user', 'holds') r), relay.now() + interval '105 s', '7 to the end of its lease');
select is(pg_temp.changes('holds'), null, '7 without a change');
select pg_temp.seat('returns', 'x');
select is(pg_temp.ask('returns', place => false), 'granted sticky x 4', '7 one without a lease is granted one, asked to place or not');
select is(pg_temp.leases('returns'), 'x granted 4', '7 at the epoch of the row');
select is(pg_temp.changes('returns'), 'granted x 4 sticky', '7 with a change');
select is(pg_temp.ask('returns'), 'granted sticky x 4', '7 a granted lease is held');
select is(pg_temp.changes('returns'), 'granted x 4 sticky', '7 and not granted twice');
select pg_temp.seat('for-phone', 'x');
select is(pg_temp.ask('for-phone', 'resolve'), 'granted sticky x 4', '7 a phone gets the home');
select is(pg_temp.leases('for-phone'), null, '7 and no lease is granted for it');
select pg_temp.seat('full-held', 'full'), pg_temp.hold('full-held', 'full');
select is(pg_temp.ask('full-held'), 'granted sticky full 4', '7 on a full cell a host that holds a lease is kept');
select pg_temp.seat('keep-held', 'empty'), pg_temp.hold('keep-held', 'empty', state => 'granted');
select is(pg_temp.ask('keep-held'), 'granted sticky empty 4', '7 whatever the admission');
-- the stamp
select test_clock.advance('59.999 s');
select pg_temp.beat('x');
select pg_temp.ask('holds', region => 'west');
select is((select array[a.last_activity_at::text, a.preferred_region] from relay.assignment a where a.relay_host_id = 'holds'),
  array[(relay.now() - interval '59.999 s')::text, null], '7 the activity is not stamped within a minute');
select test_clock.advance('1 ms');
select pg_temp.beat('x'), pg_temp.beat('y'), pg_temp.beat('full', 10);
select pg_temp.ask('holds', 'resolve');
select is((select a.last_activity_at from relay.assignment a where a.relay_host_id = 'holds'), relay.now() - interval '60 s', '7 never for a phone');
select pg_temp.ask('holds', region => 'west');
select is((select a.last_activity_at from relay.assignment a where a.relay_host_id = 'holds'), relay.now(), '7 after a minute it is');
select is((select a.preferred_region from relay.assignment a where a.relay_host_id = 'holds'), 'west', '7 with the region it asks for');
-- what is no lease
select pg_temp.seat('retiring', 'full'), pg_temp.hold('retiring', 'full', state => 'retiring');
select is(pg_temp.ask('retiring', place => false), 'would_place headroom', '7 a retiring lease is not held');
select pg_temp.seat('older', 'full'), pg_temp.hold('older', 'full', epoch => 3);
select is(pg_temp.ask('older', place => false), 'would_place headroom', '7 nor one of an older epoch');
select pg_temp.seat('expired', 'full'), pg_temp.hold('expired', 'full', life => '0 s');
select is(pg_temp.ask('expired', place => false), 'would_place headroom', '7 nor an expired one');

-- 8 headroom
select pg_temp.seat('crowded', 'full'), pg_temp.hold('crowded', 'full', life => '0 s');
select is(pg_temp.ask('crowded', place => false), 'would_place headroom', '8 asked not to place');
select is(pg_temp.home('crowded'), 'full 4', '8 nothing is written then');
select is(pg_temp.ask('crowded', region => 'west'), 'granted headroom y 5 from full', '8 a host without a lease leaves a full cell');
select is(pg_temp.home('crowded'), 'y 5', '8 at the next epoch');
select is(pg_temp.leases('crowded'), 'full retiring 4, y granted 5', '8 the old lease retires');
select is((select l.retire_until from relay.lease l where l.relay_host_id = 'crowded' and l.cell_id = 'full'), relay.now() + interval '60 s', '8 in 60 s');
select is(pg_temp.changes('crowded'), 'moved full y 5 headroom', '8 the change');
select is((select c.detail from relay.change c where c.relay_host_id = 'crowded'),
  jsonb_build_object('forced', false, 'retire_until', extract(epoch from relay.now() + interval '60 s')::bigint * 1000), '8 and until when');
select is((relay_v1.explain_assign('user', 'retiring') ->> 'rule'), 'headroom', '8 explained alike');

-- unattached since the first grant, not the latest
select pg_temp.seat('late', 'x'), pg_temp.seat('late-moved', 'full');
update relay.assignment set unattached_since = relay.now() - interval '5 min' where relay_host_id like 'late%';
select is(pg_temp.ask('late') || ', ' || pg_temp.ask('late-moved', region => 'west'), 'granted sticky x 4, granted headroom y 5 from full', 'granted again, and moved');
select is((select count(*) from relay.assignment where relay_host_id like 'late%' and unattached_since = relay.now() - interval '5 min'), 2::bigint, 'unattached since the first grant');

-- 9 no-headroom
select pg_temp.seat('phone-full', 'full');
select is(pg_temp.ask('phone-full', 'resolve'), 'no_headroom no-headroom', '9 a phone moves nobody');
select is(pg_temp.ask('phone-full', 'invite'), 'no_headroom no-headroom', '9 nor an invite');
select is(pg_temp.ask('phone-full', 'sweep'), 'no_headroom no-headroom', '9 nor a sweep');
select is(pg_temp.ask('phone-full', 'operator'), 'no_headroom no-headroom', '9 nor an operator');
select pg_temp.beat('keep', 10), pg_temp.beat('empty', 10);
select pg_temp.seat('on-keep', 'keep'), pg_temp.seat('on-empty', 'empty');
select is(pg_temp.ask('on-keep'), 'no_headroom no-headroom', '9 a cell that is not general is not left for its load');
select is(pg_temp.ask('on-empty'), 'no_headroom no-headroom', '9 neither an emptied one');
select is(pg_temp.home('on-empty'), 'empty 4', '9 the row stays');

-- 14 home-unavailable, and not hearing: the first heartbeat was 60 s ago, the cells have been heard since
select pg_temp.seat('lost', 'gone');
select is(pg_temp.ask('lost'), 'unavailable home-unavailable booting', '14 booting: no such cell');
insert into relay.cell_runtime (cell_id, incarnation, started_at, ready, heard_at, enforced_units, inclusion_watermark)
values ('gone', lpad('1', 32, '0')::uuid, relay.now(), true, relay.now(), 0, 0);
select is(pg_temp.ask('lost'), 'unavailable home-unavailable booting', '14 booting: one whose heartbeat is all that is left');
delete from relay.cell_runtime where cell_id = 'gone';
select pg_temp.seat('unborn', 'o');
select relay_v1.register_cell('o', 'https://o', 'east', 10);
select is(pg_temp.ask('unborn'), 'unavailable home-unavailable booting', '14 booting: never heard');
select pg_temp.live_on(45, 'y');
select pg_temp.seat('on-capped', 'capped'), pg_temp.hold('on-capped', 'capped');
select is(pg_temp.ask('on-capped'), 'unavailable home-unavailable unheard', '14 unheard: a capped cell is not left for its silence');
select is(pg_temp.home('on-capped') || ', ' || pg_temp.leases('on-capped'), 'capped 4, capped active 4', '14 row and leases stay');
select is(pg_temp.ask('on-capped', 'resolve'), 'unavailable home-unavailable unheard', '14 whoever asks');
update relay.cell c set admission = 'existing-only' where c.cell_id = 'capped';
select is(pg_temp.ask('on-capped'), 'unavailable home-unavailable draining', '14 draining: existing-only');
update relay.cell c set admission = 'general', drain_incarnation = lpad('1', 32, '0')::uuid, drain_grace_ms = 0, drain_pace_ms = 0 where c.cell_id = 'capped';
select is(pg_temp.ask('on-capped'), 'unavailable home-unavailable draining', '14 draining: its process has a drain order');
update relay.cell c set admission = 'migration-only', roll_isolated_at = relay.now() - interval '1:59:59.999' where c.cell_id = 'capped';
select is(pg_temp.ask('on-capped'), 'unavailable home-unavailable unheard', '14 unheard: the drain belongs to a roll');
update relay.cell c set roll_isolated_at = relay.now() - interval '2 hours' where c.cell_id = 'capped';
select is(pg_temp.ask('on-capped'), 'unavailable home-unavailable draining', '14 draining: the stamp of the roll is 2 h old');
update relay.cell c set admission = 'general', roll_isolated_at = null, drain_incarnation = lpad('2', 32, '0')::uuid where c.cell_id = 'capped';
select is(pg_temp.ask('on-capped'), 'unavailable home-unavailable unheard', '14 unheard: another process was told to drain');
select pg_temp.beat('capped', 440, ready => false);
select is(pg_temp.ask('on-capped'), 'unavailable home-unavailable not_ready', '14 not_ready: heard, and not ready (43, 51)');
select pg_temp.beat('capped', 10);
select is(pg_temp.ask('on-capped'), 'granted sticky capped 4', '14 and kept when it is back');

-- 11 dead-uncapped: x is silent, y and capped go on
select pg_temp.live_on(14, 'y', 'capped');
select pg_temp.seat('orphan', 'x'), pg_temp.hold('orphan', 'x');
select is(pg_temp.ask('orphan'), 'unavailable home-unavailable unheard', '11 cells have been heard for 59 s: nobody is judged');
select pg_temp.live_on(1, 'y', 'capped');
select is(pg_temp.ask('orphan', 'resolve'), 'unavailable home-unavailable unheard', '11 a phone moves nobody');
select is(pg_temp.ask('orphan', 'invite'), 'unavailable home-unavailable unheard', '11 nor an invite');
select is(pg_temp.ask('orphan', 'sweep'), 'unavailable home-unavailable unheard', '11 nor a sweep');
select is(pg_temp.ask('orphan', place => false), 'would_place dead-uncapped', '11 asked not to place');
select is(pg_temp.ask('orphan', region => 'west'), 'granted dead-uncapped y 5 from x', '11 a host leaves a dead cell that has no cap (29)');
select is(pg_temp.leases('orphan'), 'y granted 5', '11 at once: no lease of it is left');
select is((select c.detail from relay.change c where c.relay_host_id = 'orphan'), '{"forced": true, "retire_until": null}', '11 forced');
select is(pg_temp.ask('orphan'), 'granted sticky y 5', '11 once');
select pg_temp.seat('too-soon', 'o');
select is(pg_temp.ask('too-soon'), 'unavailable home-unavailable booting', '11 not a cell that was never heard');
select pg_temp.seat('no-target', 'x');
update relay.cell c set admission = 'existing-only' where c.cell_id in ('y', 'capped');
select is(pg_temp.ask('no-target'), 'no_capacity dead-uncapped', '11 without a target: no capacity (32)');
select is(pg_temp.home('no-target'), 'x 4', '11 the row unchanged');
select is(pg_temp.changes('no-target'), null, '11 and no change');
update relay.cell c set admission = 'general' where c.cell_id in ('y', 'capped');
-- V5: the database was away for 60 s
select test_clock.advance('60 s');
select is(pg_temp.ask('no-target'), 'unavailable home-unavailable unheard', 'V5 all cells are silent: nobody is judged');
select is(pg_temp.ask('crowded'), 'unavailable home-unavailable unheard', 'V5 nobody of a live cell is moved before its first beat');
select pg_temp.beat('y');
select is(pg_temp.ask('crowded'), 'granted sticky y 5', 'V5 and is kept after it');
select is(pg_temp.ask('no-target'), 'unavailable home-unavailable unheard', 'V5 the silence of x may be the outage''s');
select pg_temp.live_on(59, 'y');
select is(pg_temp.ask('no-target'), 'unavailable home-unavailable unheard', 'V5 for 60 s');
select pg_temp.live_on(1, 'y');
select is(pg_temp.ask('no-target', place => false), 'would_place dead-uncapped', 'V5 and then it is judged');
select is(pg_temp.ask('on-capped'), 'unavailable home-unavailable unheard', '11 but a capped cell is never left for its silence');

-- 2 dormant
select pg_temp.seat('sleeps', 'y'), pg_temp.seat('sleeps-held', 'y'), pg_temp.seat('sleeps-once', 'y'), pg_temp.seat('stays', 'y');
select pg_temp.hold('sleeps-once', 'y', life => '1 hour');
select pg_temp.beat('x');
select test_clock.advance('23:58:59'), pg_temp.beat('y'), pg_temp.beat('x');
select pg_temp.live_on(60, 'y', 'x');
select pg_temp.hold('sleeps-held', 'y');
select is(pg_temp.ask('sleeps', place => false), 'granted sticky y 4', '2 active 23:59:59 ago: not dormant');
select test_clock.advance('1 s');
delete from relay.lease l where l.relay_host_id = 'sleeps';
update relay.assignment a set last_activity_at = relay.now() - interval '24 hours' where a.relay_host_id = 'sleeps';
select is(pg_temp.ask('sleeps-held', place => false), 'granted sticky y 4', '2 a host that holds a lease is never dormant');
select is(pg_temp.ask('sleeps-once', place => false), 'granted sticky y 4', '2 the end of its latest lease counts, an expired one too');
select is(pg_temp.ask('sleeps', 'resolve'), 'granted sticky y 4', '2 a phone wakes nobody');
select is(pg_temp.ask('sleeps', place => false), 'would_place dormant', '2 24 h: dormant');
select is(pg_temp.ask('sleeps', region => 'east'), 'granted dormant x 5 from y', '2 placed anew');
select is((select c.detail from relay.change c where c.relay_host_id = 'sleeps' and c.kind = 'moved'), '{"forced": true, "retire_until": null}', '2 forced');
select is(pg_temp.ask('stays', region => 'west'), 'granted dormant y 4', '2 the target is the home: kept');
select is(pg_temp.changes('stays'), 'granted y 4 dormant', '2 at the same epoch');
select pg_temp.seat('drowses', 'y');
update relay.assignment a set last_activity_at = relay.now() - interval '25 hours' where a.relay_host_id = 'drowses';
select test_clock.advance('20 s');
select is(pg_temp.ask('drowses'), 'granted sticky y 4', '2 while no cell was heard for 20 s, nobody is dormant');
-- live: heard less than 45 s ago
select test_clock.advance('23.999 s');
select is(pg_temp.ask('drowses'), 'granted sticky y 4', '7 the home was heard 44.999 s ago');
select test_clock.advance('1 ms');
select is(pg_temp.ask('drowses'), 'unavailable home-unavailable unheard', '14 and 45 s ago');
select * from finish();
