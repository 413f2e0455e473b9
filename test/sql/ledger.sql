-- record_seats (03, ledger; 28, P2).
\ir helpers/fleet.sql
select plan(31);

create function pg_temp.record(variadic seats text[]) returns text language sql as $$
  select string_agg(r.relay_host_id || ' ' || r.result, ', ') from relay_v1.record_seats((
    select jsonb_agg(jsonb_build_object('user_id', 'user', 'relay_host_id', split_part(s, ' ', 1), 'cell_id', split_part(s, ' ', 2),
      'epoch', split_part(s, ' ', 3)::bigint)) from unnest(seats) s)) r
$$;
create function pg_temp.row_of(host text) returns text language sql as $$
  select concat_ws(' ', a.cell_id, a.epoch) from relay.assignment a where a.relay_host_id = host
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell('x', 'https://x', 'here', 100, 1000, 10);
select relay_v1.register_cell('y', 'https://y', 'here', 100);
select pg_temp.beat(n) from unnest(array['x', 'y']) n;

select throws_ok($$ select relay_v1.record_seats('{}') $$, 'RL001', null, 'an array is needed');
select throws_ok($$ select relay_v1.record_seats(null) $$, 'RL001', null, 'a null is none');
select throws_ok($$ select relay_v1.record_seats((select jsonb_agg(n) from generate_series(1, 501) n)) $$, 'RL001', null, 'of 500 at most');
select is((select count(*) from relay_v1.record_seats('[]')), 0::bigint, 'an empty one is fine');
select is(pg_temp.record('new x 3'), 'new recorded', 'a host without a row gets one');
select is(pg_temp.row_of('new'), 'x 3', 'at the epoch of its seat');
select is(pg_temp.record('new x 3'), 'new recorded', 'a batch that is sent again is recorded');
select is((select count(*) from relay.change c where c.kind = 'recorded'), 1::bigint, 'and written once');
select is(pg_temp.record('new y 3'), 'new stale', 'P2: of two seats at one epoch the first row wins');
select is(pg_temp.record('new x 2'), 'new stale', 'a lower epoch never writes');
select is(pg_temp.row_of('new'), 'x 3', 'the row stays');
select pg_temp.hold('new', 'x', 3);
select pg_temp.migrate('new', 'y', 'x', 3);
select is(pg_temp.record('new y 4'), 'new recorded', 'a higher one does');
select is((select count(*) from relay.lease l where l.relay_host_id = 'new'), 0::bigint, 'what the host held elsewhere ends');
select is((select count(*) from relay.migration m where m.relay_host_id = 'new' and m.aborted_at is null), 0::bigint, 'and its older migration');
select is((select concat_ws(' ', c.from_cell, c.to_cell, c.epoch, c.detail) from relay.change c where c.kind = 'recorded' order by c.id desc limit 1),
  'x y 4 {"forced": true}', 'the cell that lost it hears so');
select is(pg_temp.record('b x 1', 'a x 2', 'new y 3', 'b x 2'), 'a recorded, b recorded, b recorded, new stale', 'many at once, in order of host and epoch');
select pg_temp.seat('moved', 'y', 7);
select is(pg_temp.record('moved x 6', 'moved x 7'), 'moved stale, moved stale', '28: later writes of (x,6) and (x,7) leave (y,7)');
select is(pg_temp.row_of('moved'), 'y 7', 'as it was');
select is((select count(*) from relay.change c where c.relay_host_id = 'moved'), 0::bigint, 'and nothing is said');

select throws_ok($$ select relay_v1.record_seats('[{"user_id": "u", "relay_host_id": "h", "epoch": 5}]') $$, 'RL001', null, 'a seat without a cell');
select throws_ok($$ select relay_v1.record_seats('[{"user_id": "u", "relay_host_id": "h", "cell_id": "x", "epoch": 0}]') $$, 'RL001', null, 'a seat without an epoch');
-- the row as it is, so that a stale seat can be demoted and the floor raised without another read
select is((select concat_ws(' ', r.result, r.cell_id, r.epoch) from relay_v1.record_seats('[{"user_id": "user", "relay_host_id": "moved", "cell_id": "x", "epoch": 7}]') r), 'stale y 7', 'a stale seat is answered with its row');
select is((select concat_ws(' ', r.result, r.cell_id, r.epoch) from relay_v1.record_seats('[{"user_id": "user", "relay_host_id": "moved", "cell_id": "x", "epoch": 8}]') r), 'recorded x 8', 'and a recorded one');

-- the stamp of activity, at most once an hour
create function pg_temp.active(host text) returns text language sql as $$
  select concat_ws(' ', relay.now() - a.last_activity_at) from relay.assignment a where a.relay_host_id = host
$$;
select test_clock.advance('1 h');
select pg_temp.record('moved y 7');
select is(pg_temp.active('moved'), '01:00:00', 'a stale seat is no activity');
update relay.assignment set last_activity_at = relay.now() - interval '59 min 59 s' where relay_host_id = 'moved';
select is(pg_temp.record('moved x 8'), 'moved recorded', 'a seat that the row has');
select is(pg_temp.active('moved'), '00:59:59', 'is not stamped within an hour');
select test_clock.advance('1 s');
select pg_temp.record('moved x 8');
select is(pg_temp.active('moved'), '00:00:00', 'and is after it');
select is((select count(*) from relay.change c where c.relay_host_id = 'moved' and c.kind = 'recorded'), 1::bigint, 'which is no change of where it belongs');
-- so a host that has been seated from memory for days is not dormant when its cell dies (03, rule 2)
select test_clock.advance('23 h');
select pg_temp.record('moved x 8');
select test_clock.advance('2 h');
select pg_temp.live_on(75, 'y');
select is(pg_temp.ask('moved', floor => 8), 'unavailable home-unavailable unheard', 'a host seated from memory is not dormant two hours after its cell fell silent');
select test_clock.advance('22 h');
select pg_temp.live_on(75, 'y');
select is(pg_temp.ask('moved', floor => 8), 'granted dormant y 9 from x', 'but after 24 h');
select is(pg_temp.changes('moved'), 'recorded y x 8, moved x y 9 dormant', 'as the log says');
select * from finish();
