-- verify_seat, activate_control, renew_leases, release_lease, sweep_leases (wire 2.7, 2.8).
select plan(70);

create function pg_temp.inc(n int default 1) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
create function pg_temp.beat(cell text, mark bigint default 1, process int default 1) returns text language sql as $$
  select relay_v1.heartbeat(cell, 'https://' || cell, 'here', pg_temp.inc(process), timestamptz '2029-01-01' + make_interval(secs => process),
    true, jsonb_build_object('enforced_units', 0, 'inclusion_watermark', mark))
$$;
create function pg_temp.activate(host text, epoch bigint default 4, cell text default 'a', generation bigint default 1,
  mark bigint default 2, process int default 1) returns text language sql as $$
  select r.outcome from relay_v1.activate_control('user', host, cell, pg_temp.inc(process), epoch, generation, mark) r
$$;
create function pg_temp.renew(host text, epoch bigint default 4, generation bigint default 1, units int default 3,
  mark bigint default 9, cell text default 'a', process int default 1) returns text language sql as $$
  select r.outcome from relay_v1.renew_leases(cell, pg_temp.inc(process), jsonb_build_array(jsonb_build_object('user_id', 'user',
    'relay_host_id', host, 'epoch', epoch, 'generation', generation, 'units', units, 'inclusion_watermark', mark))) r
$$;
create function pg_temp.release(host text, epoch bigint default 4, generation bigint default 1, reason text default null,
  cell text default 'a', process int default 1) returns text language sql as $$
  select relay_v1.release_lease('user', host, cell, pg_temp.inc(process), epoch, generation, reason)
$$;
create function pg_temp.seat(host text, cell text default 'a', epoch bigint default 4) returns void language sql as $$
  insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at, unattached_since, last_close_reason, last_close_reason_at)
  values ('user', host, cell, epoch, relay.now(), relay.now(), 'signed-out', relay.now())
$$;
create function pg_temp.lease(host text) returns relay.lease language sql as $$
  select l from relay.lease l where l.relay_host_id = host
$$;
create function pg_temp.row_of(host text) returns relay.assignment language sql as $$
  select a from relay.assignment a where a.relay_host_id = host
$$;
create function pg_temp.ended(host text) returns jsonb language sql as $$
  select c.detail from relay.change c where c.relay_host_id = host and c.kind = 'lease_ended' and c.from_cell = 'a' order by c.id desc limit 1
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'here', 100), pg_temp.beat(n) from unnest(array['a', 'b']) n;
select pg_temp.seat('h');

-- verify_seat (S6, S18)
select ok(relay_v1.verify_seat('user', 'h', 'a', 4), 'this cell at this epoch');
select ok(not relay_v1.verify_seat('user', 'h', 'a', 3), 'no older epoch');
select ok(not relay_v1.verify_seat('user', 'h', 'a', 5), 'no newer one');
select ok(not relay_v1.verify_seat('user', 'h', 'b', 4), 'no other cell');
select ok(not relay_v1.verify_seat('other', 'h', 'a', 4), 'no other account');

-- activate_control
select is(pg_temp.activate('h', process => 2), 'stale_cell_incarnation', 'an old process takes no lease (V2)');
select is(pg_temp.activate('nobody'), 'no_assignment', 'nor does a host without a row');
select is(pg_temp.activate('h', cell => 'b'), 'wrong_cell', 'nor another cell');
select is(pg_temp.activate('h', epoch => 3), 'wrong_epoch', 'nor an older epoch');
select is(pg_temp.activate('h', epoch => 5), 'wrong_epoch', 'nor a newer one');
select is((select count(*) from relay.lease), 0::bigint, 'nothing is written for them');
select is((pg_temp.row_of('h')).last_close_reason, 'signed-out', 'and why it closed is still known (S26)');
select test_clock.advance('1 s');
select is((select r.lease_expires_at from relay_v1.activate_control('user', 'h', 'a', pg_temp.inc(), 4, 1, 2) r), relay.now() + interval '105 s', 'active for 105 s');
select is(row((pg_temp.lease('h')).*)::text, row('user', 'h', 'a', 4, pg_temp.inc(), 1, 'active', 1, 2, relay.now() + interval '105 s', null)::text, 'the lease');
select is((pg_temp.row_of('h')).last_close_reason, null, 'why it closed is forgotten (S26)');
select is((pg_temp.row_of('h')).unattached_since, null, 'and that it was unattached');
select is((pg_temp.row_of('h')).last_activity_at, relay.now(), 'it was active now');
select is(pg_temp.activate('h', generation => 2, mark => 5), 'active', 'a new generation');
select is(array[(pg_temp.lease('h')).generation, (pg_temp.lease('h')).inclusion_watermark], array[2, 5]::bigint[], 'takes the lease over');
select throws_ok($$ select pg_temp.activate('h', mark => null) $$, 'RL001', null, 'no watermark is a misuse');

-- renew_leases
select test_clock.advance('30 s');
select is(pg_temp.renew('h', generation => 1), 'control_activity_not_found', 'an older generation renews nothing');
select is(pg_temp.renew('h', epoch => 3, generation => 2), 'control_activity_not_found', 'nor an older epoch');
select is(pg_temp.renew('h', generation => 2, cell => 'b'), 'control_activity_not_found', 'nor another cell');
select is(pg_temp.renew('h', generation => 2, process => 2), 'stale_cell_incarnation', 'nor another process');
select is((pg_temp.lease('h')).expires_at, relay.now() + interval '75 s', 'indeed');
select is(pg_temp.renew('h', generation => 2), 'renewed', 'its own does');
select is((pg_temp.lease('h')).expires_at, relay.now() + interval '105 s', 'for 105 s');
select is((pg_temp.lease('h')).units, 3, 'with the units it holds now');
select is((pg_temp.lease('h')).inclusion_watermark, 5::bigint, 'its watermark does not rise: it is in the heartbeats already');
select is((pg_temp.row_of('h')).last_activity_at, relay.now() - interval '30 s', 'the row of the host is left alone');
select test_clock.advance('200 s');
select is(pg_temp.renew('h', generation => 2), 'renewed', 'an expired lease is renewed too: the database was away, the socket is there');
update relay.lease set state = 'retiring', retire_until = relay.now() + interval '60 s' where relay_host_id = 'h';
select is((select row(r.*)::text from relay_v1.renew_leases('a', pg_temp.inc(), '[{"user_id":"user","relay_host_id":"h","epoch":4,"generation":2,"units":1,"inclusion_watermark":5}]') r),
  row('user', 'h', 'retiring', null::timestamptz, relay.now() + interval '60 s')::text, 'a retiring one is not, and says until when');
select is((pg_temp.lease('h')).units, 3, 'it stays as it is');
select is((select count(*) from relay_v1.renew_leases('a', pg_temp.inc(), '[]')), 0::bigint, 'none asked, none answered');
select throws_ok($$ select relay_v1.renew_leases('a', pg_temp.inc(), (select jsonb_agg(n) from generate_series(1, 201) n)) $$, 'RL001', null, 'more than 200 is a misuse');
select pg_temp.seat('n' || n), pg_temp.activate('n' || n) from generate_series(1, 199) n;
select is((select string_agg(distinct r.outcome || r.relay_host_id, ',') filter (where r.relay_host_id = 'z') || count(*) filter (where r.outcome = 'renewed')
  from relay_v1.renew_leases('a', pg_temp.inc(), (select jsonb_agg(jsonb_build_object('user_id', 'user', 'relay_host_id',
    case when n = 200 then 'z' else 'n' || n end, 'epoch', 4, 'generation', 1, 'units', 1, 'inclusion_watermark', 2)) from generate_series(1, 200) n)) r),
  'control_activity_not_foundz199', '200 at once, an outcome each');

-- a move ends the old lease: the revived cell renews nothing (P2, 35)
select pg_temp.seat('moved'), pg_temp.activate('moved');
update relay.assignment set cell_id = 'b', epoch = 5 where relay_host_id = 'moved';
delete from relay.lease where relay_host_id = 'moved';
select is(pg_temp.renew('moved'), 'control_activity_not_found', 'moved by force: not found');
select is(pg_temp.activate('moved'), 'wrong_cell', 'and not taken again');
select is(pg_temp.release('moved', reason => 'signed-out'), 'not_held', 'a late release frees nothing (35)');
select is((pg_temp.row_of('moved')).last_close_reason, null, 'and says nothing about the seat elsewhere');

-- release_lease
select is(pg_temp.release('n1', process => 2), 'stale_cell_incarnation', 'another process releases nothing');
select is(pg_temp.release('n1', generation => 2), 'not_held', 'nor another generation');
select is(pg_temp.release('n1', epoch => 3), 'not_held', 'nor another epoch');
select is(pg_temp.release('n1', cell => 'b'), 'not_held', 'nor another cell');
select is((pg_temp.lease('n1')).state, 'active', 'indeed');
select test_clock.advance('5 s');
select is(pg_temp.release('n1', reason => 'signed-out'), 'released', 'its own does');
select is((pg_temp.lease('n1')).state, null, 'the lease is gone');
select is(row((pg_temp.row_of('n1')).last_activity_at, (pg_temp.row_of('n1')).last_close_reason, (pg_temp.row_of('n1')).last_close_reason_at),
  row(relay.now(), 'signed-out'::text, relay.now()), 'when and why is kept (S26)');
select is(pg_temp.ended('n1'), '{"reason": "released", "close_reason": "signed-out"}', 'and told');
select is(pg_temp.release('n1'), 'not_held', 'once');
select is(pg_temp.release('n2'), 'released', 'without a reason');
select is((pg_temp.row_of('n2')).last_close_reason, null, 'none is kept');

select pg_temp.seat('retires'), pg_temp.activate('retires');
update relay.assignment set cell_id = 'b', epoch = 5 where relay_host_id = 'retires';
update relay.lease set state = 'retiring', retire_until = relay.now() where relay_host_id = 'retires';
select is(pg_temp.release('retires', reason => 'signed-out'), 'released', 'a retiring lease is released');
select is((pg_temp.row_of('retires')).last_close_reason, null, 'and says nothing about the seat elsewhere');

-- a new process of the cell
select pg_temp.seat('old'), pg_temp.activate('old');
select pg_temp.beat('a', process => 2);
select is(pg_temp.renew('old', process => 2), 'control_activity_not_found', 'a new process has no part in the leases of the old one');
select is(pg_temp.activate('old', process => 2), 'active', 'but takes them over');
select is(pg_temp.release('old', process => 2), 'released', 'and gives them up');

-- sweep_leases
update relay.cell_runtime set incarnation = pg_temp.inc() where cell_id = 'a';
select pg_temp.seat('swept'), pg_temp.activate('swept'), pg_temp.seat('swept-old', epoch => 5);
insert into relay.lease (user_id, relay_host_id, cell_id, epoch, state, units, expires_at) values ('user', 'swept-old', 'a', 4, 'granted', 1, relay.now());
update relay.assignment set last_activity_at = relay.now() - interval '1 hour' where relay_host_id in ('swept', 'swept-old');
select test_clock.advance('105 s');
select is(relay_v1.sweep_leases(1), 1, 'a sweep is limited');
select is(relay_v1.sweep_leases(), 199, 'and takes every lease that has expired');
select is((pg_temp.row_of('swept')).last_activity_at, relay.now(), 'its end is the activity of the host');
select is((pg_temp.row_of('swept-old')).last_activity_at, relay.now() - interval '1 hour 105 s', 'if the row is still at its epoch');
select is(pg_temp.ended('swept'), '{"reason": "expired"}', 'and is told');
select is(relay_v1.sweep_leases(), 0, 'then there is nothing left');
select pg_temp.seat('seen'), pg_temp.activate('seen');
select test_clock.advance('2 hours');
update relay.assignment set last_activity_at = relay.now() - interval '1 hour' where relay_host_id = 'seen';
select is(relay_v1.sweep_leases(), 1, 'a host that was active after its lease ended');
select is((pg_temp.row_of('seen')).last_activity_at, relay.now() - interval '1 hour', 'was active then');
select is(pg_temp.release('swept', reason => 'account-removed'), 'not_held', 'a release that comes after the sweep');
select is((pg_temp.row_of('swept')).last_close_reason, 'account-removed', 'still says why');
select pg_temp.release('swept-old', reason => 'account-removed');
select is((pg_temp.row_of('swept-old')).last_close_reason, 'signed-out', 'not of an older epoch');
select pg_temp.activate('swept', generation => 2), pg_temp.release('swept', reason => 'late');
select is((pg_temp.row_of('swept')).last_close_reason, null, 'nor once somebody is seated again');
select is((pg_temp.lease('swept')).state, 'active', 'who stays so');
select * from finish();
