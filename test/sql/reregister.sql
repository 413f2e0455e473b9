-- reregister_controls (90): a lease for each control that a cell admitted from memory, exactly or not at all.
\ir helpers/fleet.sql
select plan(35);

create function pg_temp.inc(n int default 1) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
-- controls: 'host epoch generation'
create function pg_temp.again(variadic controls text[]) returns text language sql as $$
  select string_agg(r.relay_host_id || ' ' || r.outcome, ', ') from relay_v1.reregister_controls('x', pg_temp.inc(), (
    select jsonb_agg(jsonb_build_object('user_id', 'user', 'relay_host_id', split_part(s, ' ', 1),
      'epoch', split_part(s, ' ', 2)::bigint, 'generation', split_part(s, ' ', 3)::bigint, 'units', 5,
      'inclusion_watermark', 7)) from unnest(controls) s)) r
$$;
create function pg_temp.lease(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', l.cell_id, l.state, l.epoch, l.generation, l.units, l.inclusion_watermark,
    right(l.incarnation::text, 1), l.expires_at - relay.now()), ', ' order by l.cell_id) from relay.lease l where l.relay_host_id = host
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'here', 100), pg_temp.beat(n) from unnest(array['x', 'y']) n;
select relay_v1.set_admit_mode('x', 'reserve');

select throws_ok($$ select relay_v1.reregister_controls('x', pg_temp.inc(), '{}') $$, 'RL001', null, 'an array is needed');
select throws_ok($$ select relay_v1.reregister_controls('x', pg_temp.inc(), null) $$, 'RL001', null, 'a null is none');
select throws_ok($$ select relay_v1.reregister_controls('x', pg_temp.inc(), (select jsonb_agg(n) from generate_series(1, 201) n)) $$, 'RL001', null, 'of 200 at most');
select throws_ok($$ select relay_v1.reregister_controls('x', pg_temp.inc(), '[{"user_id": "user", "relay_host_id": "h", "epoch": 4, "generation": 1, "units": 1}]') $$,
  'RL001', null, 'a control without its watermark');
select is((select count(*) from relay_v1.reregister_controls('x', pg_temp.inc(), '[]')), 0::bigint, 'none is fine');

select pg_temp.seat('h', 'x', 4, '5 s', '1 h');
update relay.assignment set last_close_reason = 'signed-out', last_close_reason_at = relay.now();
select is(pg_temp.again('h 4 2'), 'h active', '90: a control at the epoch of its row gets a lease');
select is(pg_temp.lease('h'), 'x active 4 2 5 7 1 00:01:45', 'of its generation, units and watermark, for 105 s');
select is((select concat_ws(' ', a.last_activity_at = relay.now(), a.unattached_since, a.last_close_reason) from relay.assignment a), 't',
  'the host is active, attached, and why it closed is forgotten');
select is((select array[r.user_id, r.epoch::text, r.generation::text, (r.lease_expires_at - relay.now())::text]
  from relay_v1.reregister_controls('x', pg_temp.inc(), '[{"user_id": "user", "relay_host_id": "h", "epoch": 4, "generation": 2, "units": 1, "inclusion_watermark": 7}]') r),
  array['user', '4', '2', '00:01:45'], 'the answer names the control, and a batch that is sent again is leased again');
select is((select r.outcome from relay_v1.renew_leases('x', pg_temp.inc(),
  '[{"user_id": "user", "relay_host_id": "h", "epoch": 4, "generation": 2, "units": 1, "inclusion_watermark": 7}]') r), 'renewed', 'which renews');
select is((select r.outcome from relay_v1.reregister_controls('x', pg_temp.inc(), '[{"user_id": "other", "relay_host_id": "h", "epoch": 4, "generation": 2, "units": 1, "inclusion_watermark": 7}]') r),
  'no_assignment', 'another account has no row');
select is(pg_temp.again('h 4 1'), 'h superseded', 'a batch on its way while a newer control attached leaves that one its lease');
select is(pg_temp.lease('h'), 'x active 4 2 1 7 1 00:01:45', 'as it was');

-- refused by the row
select pg_temp.seat(n, c, e) from (values ('elsewhere', 'y', 4), ('newer', 'x', 5), ('older', 'x', 3), ('away', 'y', 3), ('passed', 'y', 5)) v (n, c, e);
select is(pg_temp.again('nobody 4 1'), 'nobody no_assignment', '90: no row');
select is(pg_temp.again('elsewhere 4 1'), 'elsewhere wrong_cell', '90: the row names another cell at this epoch');
select is(pg_temp.again('passed 4 1'), 'passed wrong_cell', '90: and at a higher one');
select is(pg_temp.again('newer 4 1'), 'newer wrong_epoch', '90: the row has a higher epoch');
select is(pg_temp.again('older 4 1'), 'older behind', '90: the row has a lower one: the ledger has yet to record the seat');
select is(pg_temp.again('away 4 1'), 'away behind', '90: on another cell, too');
select is((select count(*) from relay.lease l where l.relay_host_id <> 'h'), 0::bigint, 'and nothing is written for them');
select is(pg_temp.again('older 4 1', 'h 4 3', 'elsewhere 4 1'), 'elsewhere wrong_cell, h active, older behind', 'many at once, in order of host, each by itself');
select relay_v1.record_seats('[{"user_id": "user", "relay_host_id": "older", "cell_id": "x", "epoch": 4}]');
select is(pg_temp.again('older 4 1'), 'older active', 'once the ledger has come it is leased');

-- another process
select is((select string_agg(r.outcome, ' ') from relay_v1.reregister_controls('x', pg_temp.inc(2),
  '[{"user_id": "user", "relay_host_id": "h", "epoch": 4, "generation": 9, "units": 1, "inclusion_watermark": 7}]') r), 'stale_cell_incarnation', 'V2: a process that was not heard last leases nothing');
select is((select string_agg(r.outcome, ' ') from relay_v1.reregister_controls('nowhere', pg_temp.inc(),
  '[{"user_id": "user", "relay_host_id": "h", "epoch": 4, "generation": 9, "units": 1, "inclusion_watermark": 7}]') r), 'stale_cell_incarnation', 'nor does a cell that was never heard');
select is(pg_temp.lease('h'), 'x active 4 3 5 7 1 00:01:45', 'the lease is as it was');
select pg_temp.beat('x', process => 2);
select is((select r.outcome from relay_v1.reregister_controls('x', pg_temp.inc(2),
  '[{"user_id": "user", "relay_host_id": "h", "epoch": 4, "generation": 1, "units": 1, "inclusion_watermark": 7}]') r), 'active', 'a new process counts its generations anew');
select is(pg_temp.lease('h'), 'x active 4 1 1 7 2 00:01:45', 'and takes over');

-- what else the host may hold here, and a migration that brought it
select pg_temp.beat('x', process => 3);
create function pg_temp.third(control text) returns text language sql as $$
  select r.outcome from relay_v1.reregister_controls('x', pg_temp.inc(3), jsonb_build_array(jsonb_build_object('user_id', 'user',
    'relay_host_id', split_part(control, ' ', 1), 'epoch', split_part(control, ' ', 2)::bigint, 'generation', 1, 'units', 1, 'inclusion_watermark', 7))) r
$$;
select pg_temp.seat('promised', 'x', 4);
select pg_temp.hold('promised', 'x', 4, 'granted', '-1 h');
select is(pg_temp.third('promised 4'), 'active', 'a promise becomes a seat');
select is(pg_temp.lease('promised'), 'x active 4 1 1 7 3 00:01:45', 'however old');
select pg_temp.seat('back', 'x', 6);
select pg_temp.hold('back', 'x', 4, 'retiring');
select is(pg_temp.third('back 6'), 'active', 'the rest of an older seat here is replaced');
select is(pg_temp.lease('back'), 'x active 6 1 1 7 3 00:01:45', 'by the one at the epoch of the row');
select pg_temp.seat('coming', 'x', 4);
select pg_temp.migrate('coming', 'y', 'x', 4);
select is(pg_temp.third('coming 4'), 'active', 'a host that a migration brought');
select is((select array[m.registered_at is not null, m.completed_at is not null, m.target_incarnation = pg_temp.inc(3)] from relay.migration m where m.relay_host_id = 'coming'),
  array[true, true, true], '90: marks it registered, and completes it if the old seat is gone');
select pg_temp.seat('going', 'x', 4);
select pg_temp.migrate('going', 'y', 'x', 4);
select pg_temp.hold('going', 'y', 3);
select is(pg_temp.third('going 4'), 'active', 'and one whose old seat is still there');
select is((select array[m.registered_at is not null, m.completed_at is not null] from relay.migration m where m.relay_host_id = 'going'),
  array[true, false], 'only marks it');
select * from finish();
