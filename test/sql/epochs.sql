-- Epochs never fall and never repeat (P1, P2; V1, V4): mint_epoch, the triggers, a failover.
select plan(28);

create function pg_temp.beat(cell text) returns text language sql as $$
  select relay_v1.heartbeat(cell, 'https://' || cell, 'here', lpad('1', 32, '0')::uuid, '2029-01-01', true,
    '{"enforced_units": 0, "inclusion_watermark": 1}')
$$;
select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell('a', 'https://a', 'here', 100), pg_temp.beat('a');

select is(relay.mint_epoch(0, null), 1::bigint, 'a new host starts at 1');
select is(relay.mint_epoch(4, null), 5::bigint, 'a move adds one');
select is(relay.mint_epoch(4, 3), 5::bigint, 'a lower floor changes nothing');
select is(relay.mint_epoch(4, 6), 7::bigint, 'a higher one does');
select is(relay.mint_epoch(0, 0), 1::bigint, 'a floor of 0 is none');
update relay.setting set epoch_base = 1000;
select is(relay.mint_epoch(4, 6), 1001::bigint, 'nor below the base');
select is(relay.mint_epoch(0, 0), 1001::bigint, 'new hosts included');
select is(relay_v1.epoch_base(), 1000::bigint, 'as a director is told that mints by itself');
update relay.setting set epoch_base = 0;
update relay.cell set admit_mode = 'reserve';
select is(relay.mint_epoch(4, null), 1004::bigint, 'V4 without a floor while a cell is reserve: 1000 above');
select is(relay.mint_epoch(4, 0), 5::bigint, 'V4 with one: the next');
update relay.cell set admit_mode = 'db';

select is((select r.epoch from relay_v1.assign('user', 'floored', epoch_floor => 8) r), 9::bigint, 'assign mints above the floor it is given');

-- a promoted standby
update relay.setting set timeline = timeline + 1;
select is(relay.mint_epoch(4, null), null, 'V1 another timeline: nothing is minted');
select is(relay_v1.epoch_base(), null, 'V1 nor by a director');
select is((select array[r.outcome, r.rule] from relay_v1.assign('user', 'new') r), array['busy', 'timeline'], 'V1 a new host waits');
select is((select count(*) from relay.assignment where relay_host_id = 'new'), 0::bigint, 'V1 without a row');
select is((select r.outcome from relay_v1.assign('user', 'floored') r), 'granted', 'V1 a host that keeps its cell does not wait');
select pg_temp.beat('a');
select is((select array[s.epoch_base, s.timeline] from relay.setting s), array[1009, relay.timeline()], 'V1 a heartbeat raises the base past all epochs');
select is(relay_v1.epoch_base(), 1009::bigint, 'V1 for directors too');
select is((select array[r.outcome, r.epoch::text] from relay_v1.assign('user', 'new') r), array['granted', '1010'], 'V1 and hosts are placed above it');
select pg_temp.beat('a');
select is((select s.epoch_base from relay.setting s), 1009::bigint, 'V1 once');

-- the triggers
select throws_ok($$ update relay.assignment set epoch = 8 where relay_host_id = 'floored' $$, 'RL002', null, 'an epoch may not fall');
select throws_ok($$ update relay.assignment set cell_id = 'b' where relay_host_id = 'floored' $$, 'RL002', null, 'a cell may not change at the same epoch');
select throws_ok($$ update relay.assignment set relay_host_id = 'other' where relay_host_id = 'floored' $$, 'RL002', null, 'nor the host');
select lives_ok($$ update relay.assignment set cell_id = 'b', epoch = 10 where relay_host_id = 'floored' $$, 'with a higher epoch it may');
select lives_ok($$ update relay.assignment set epoch = 11 where relay_host_id = 'floored' $$, 'and the epoch alone may rise');
select throws_ok($$ delete from relay.assignment $$, 'RL003', null, 'no assignment is deleted');
select throws_ok($$ truncate relay.assignment $$, 'RL003', null, 'nor all of them');
select is((select count(*) from relay.assignment), 2::bigint, 'they are still there');
select * from finish();
