-- assign: what a director knows beyond the row (03: 0 behind, `seen`, the epoch minted; V3, V4, 28).
select plan(46);
\ir helpers/fleet.sql

select test_clock.freeze('2030-01-01 00:00:00+00');
insert into relay.cell (cell_id, url, region, admission, capacity_units, registered_at)
select n, 'https://' || n, 'east', a, u, relay.now()
from (values ('x', 'general', 100), ('y', 'general', 1000), ('full', 'migration-only', 10), ('dead', 'general', 10)) v (n, a, u);
insert into relay.cell (cell_id, url, region, capacity_units, connection_hard_cap, connection_unobserved_bound, registered_at, admit_mode)
select n, 'https://' || n, 'east', 900, 600, 60, relay.now(), m from (values ('capped', 'db'), ('reserve', 'reserve')) v (n, m);
select pg_temp.beat('dead'), pg_temp.beat('capped');
select pg_temp.live_on(60, 'x', 'y', 'reserve');
select pg_temp.beat('x', 99), pg_temp.beat('y'), pg_temp.beat('full', 10);

-- 0 behind
select pg_temp.seat('behind', 'x'), pg_temp.hold('behind', 'x');
select is(pg_temp.ask('behind', floor => 4), 'granted sticky x 4', '0 a floor that is the row''s epoch: not behind');
select is(pg_temp.ask('behind', floor => 6, place => false), 'would_place behind', '0 asked not to place');
select ok(pg_temp.untouched('behind', 'x'), '0 nothing is written then');
select is(pg_temp.ask('behind', 'resolve', floor => 6), 'unavailable behind behind', 'V3 a resolve: unavailable, cause behind');
select is(pg_temp.ask('behind', 'invite', floor => 6), 'unavailable behind behind', 'V3 so an invite');
select is(pg_temp.ask('behind', 'sweep', floor => 6), 'unavailable behind behind', 'V3 so a sweep');
select is(pg_temp.ask('behind', 'operator', floor => 6), 'unavailable behind behind', 'V3 so an operator');
select ok(pg_temp.untouched('behind', 'x'), 'V3 and nothing is written');
select is(pg_temp.ask('behind', floor => 6), 'granted behind x 7', 'V3 row (X,4), X live, floor 6: granted at 7');
select is(pg_temp.home('behind'), 'x 7', 'V3 the row');
select is(pg_temp.leases('behind'), 'x granted 7', 'V3 the lease of the older epoch is gone');
select is(pg_temp.changes('behind'), 'moved x x 7 behind', 'V3 the seat at the older epoch is told');
select is((select c.detail ->> 'forced' from relay.change c where c.relay_host_id = 'behind'), 'true', 'V3 at once');
select is(pg_temp.ask('behind', floor => 7), 'granted sticky x 7', 'V3 once');
select pg_temp.seat('behind-full', 'full'), pg_temp.hold('behind-full', 'full');
select is(pg_temp.ask('behind-full', floor => 6), 'granted behind y 7 from full', '0 a full home: another cell');
select is(pg_temp.leases('behind-full'), 'y granted 7', '0 nothing is held on the home any more');
select pg_temp.seat('behind-stuck', 'full'), pg_temp.hold('behind-stuck', 'full');
update relay.cell set admission = 'migration-only' where cell_id in ('x', 'y');
select is(pg_temp.ask('behind-stuck', floor => 6), 'no_capacity behind', '0 nor another: no capacity');
select ok(pg_temp.untouched('behind-stuck', 'full'), '0 the row stays');
update relay.cell set admission = 'general' where cell_id in ('x', 'y');
select pg_temp.seat('behind-dead', 'dead'), pg_temp.seat('behind-capped', 'capped');
select is(pg_temp.ask('behind-capped', floor => 6), 'unavailable home-unavailable unheard', '0 a home that is not live: the other rows');
select is(pg_temp.ask('behind-dead', floor => 6, region => 'east') ~ '^granted dead-uncapped [xy] 7 from dead$', true, '0 which mint above the floor too');
select pg_temp.seat('behind-reserve', 'reserve');
select is(pg_temp.ask('behind-reserve', floor => 6), 'granted behind reserve 7', '0 comes before the reserve pin');

-- seen
select pg_temp.seat('seen', 'x'), pg_temp.hold('seen', 'x'), pg_temp.migrate('seen', 'y', 'x');
select is(pg_temp.ask('seen', seen => 'y 4'), 'granted sticky x 4', 'seen at the row''s epoch: the row counts');
select is(pg_temp.ask('seen', seen => 'y 3'), 'granted sticky x 4', 'seen at a lower one too');
select is(pg_temp.ask('seen', seen => 'y 6', floor => 6), 'granted sticky y 6', 'V3 seen (Z,6): decided as if the row said so');
select is(pg_temp.home('seen'), 'y 6', 'V3 the row is brought to it');
select is(pg_temp.leases('seen'), 'y granted 6', 'V3 what it held is gone');
select is(pg_temp.changes('seen'), 'recorded x y 6, granted y 6 sticky', 'V3 as the ledger would');
select is((select array[m.aborted_at is not null, m.completed_at is not null] from relay.migration m where m.relay_host_id = 'seen'),
  array[true, false], 'V3 a migration of an older epoch is aborted');
select pg_temp.seat('seen-reserve', 'x'), pg_temp.hold('seen-reserve', 'x');
select is(pg_temp.ask('seen-reserve', 'resolve', seen => 'reserve 6'), 'granted reserve-pin reserve 6', 'seen on a live reserve cell, whoever asks');
select is(pg_temp.home('seen-reserve'), 'reserve 6', 'the row is brought to it');
select pg_temp.seat('seen-capped', 'x'), pg_temp.hold('seen-capped', 'x');
select is(pg_temp.ask('seen-capped', seen => 'capped 6', floor => 6), 'unavailable home-unavailable unheard', 'seen on a dead cell: refused for it');
select is(pg_temp.home('seen-capped'), 'capped 6', 'the row is brought to it');
select pg_temp.seat('seen-dead', 'x'), pg_temp.hold('seen-dead', 'x');
select is(pg_temp.ask('seen-dead', seen => 'dead 6', floor => 6, place => false), 'would_place dead-uncapped', 'seen on a dead cell, asked not to place');
select ok(pg_temp.untouched('seen-dead', 'x'), 'nothing is written then');
select is(pg_temp.ask('seen-dead', seen => 'dead 6', floor => 6) ~ '^granted dead-uncapped [xy] 7 from dead$', true, 'and then placed');
select is(pg_temp.ask('seen-new', seen => 'y 3', floor => 3), 'granted sticky y 3', 'seen, and no row: the ledger''s');
select is(pg_temp.home('seen-new'), 'y 3', 'is made');
select is((select a.unattached_since from relay.assignment a where a.relay_host_id = 'seen-reserve'), null, 'a host that is seated is attached');
select throws_ok($$ select relay_v1.assign('user', 'seen', seen => '{"cell_id": "x"}') $$, 'RL001', null, 'half a seat is a misuse');
select throws_ok($$ select relay_v1.assign('user', 'seen', seen => '{"cell_id": "x", "epoch": "many"}') $$, 'RL001', null, 'so is an epoch that is no number');
select throws_ok($$ select relay_v1.assign('user', 'seen', poll_evidence => '{"cell_id": "x", "dead": true, "evaluated_at": "late"}') $$,
  'RL001', null, 'so is an instant that is none');

select throws_ok($$ select relay_v1.assign('user', 'seen', repeat('x', 129)) $$, 'RL001', null, 'and a region that is too long');

-- the epoch minted
select pg_temp.seat('floored', 'dead'), pg_temp.seat('unfloored', 'dead');
select is(pg_temp.ask('floored', floor => 0) ~ ' 5 from dead$', true, 'V4 with a floor of 0: the next');
select is(pg_temp.ask('unfloored') ~ ' 1004 from dead$', true, 'V4 a null floor while a cell is reserve: row + 1000');
update relay.cell set admit_mode = 'db' where cell_id = 'reserve';
select pg_temp.seat('no-reserve', 'dead');
select is(pg_temp.ask('no-reserve') ~ ' 5 from dead$', true, 'V4 and while none is: the next');
select is((select count(*) from relay.assignment a where a.epoch > 1 and a.relay_host_id = 'new'), 0::bigint, 'nobody else was touched');
select * from finish();
