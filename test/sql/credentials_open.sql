-- open_connection: every row of its table and of seat_for_phone; credential_owner (S8, S9, S16, S26; wire 2.4, 2.10).
select plan(50);

create function pg_temp.h(name text) returns text language sql as $$ select rpad(translate(name, ' ''', '__'), 43, '_') $$;
create function pg_temp.at(clock text) returns timestamptz language sql as $$ select ('2030-01-01 ' || clock || '+00')::timestamptz $$;
create function pg_temp.open(
  credential text, seats jsonb default '[{"user_id": "user-1", "epoch": 4}]', conn text default 'conn-1',
  host text default 'hostAAAAAAAAAAAA', incarnation uuid default '00000000-0000-0000-0000-00000000000a')
returns relay_v1.open_connection_result language sql as $$
  select relay_v1.open_connection(cell_id => 'cell-a', incarnation => incarnation, relay_host_id => host,
    credential_hash => pg_temp.h(credential), conn_id => conn, seats => seats)
$$;
create function pg_temp.owner(credential text, kind text, host text default 'hostAAAAAAAAAAAA') returns text language sql as $$
  select relay.credential_owner(host, pg_temp.h(credential), kind, relay.now())
$$;

select test_clock.freeze(pg_temp.at('00:00'));
insert into relay.cell_runtime (cell_id, incarnation, started_at, ready, heard_at, enforced_units, inclusion_watermark)
values ('cell-a', '00000000-0000-0000-0000-00000000000a', relay.now(), true, relay.now(), 0, 0);
insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
values ('user-1', 'hostAAAAAAAAAAAA', 'cell-a', 4, relay.now()), ('user-2', 'hostAAAAAAAAAAAA', 'cell-b', 9, relay.now());
insert into relay.lease (user_id, relay_host_id, cell_id, epoch, incarnation, generation, state, units, inclusion_watermark, expires_at)
values ('user-1', 'hostAAAAAAAAAAAA', 'cell-a', 4, '00000000-0000-0000-0000-00000000000a', 1, 'active', 1, 1, pg_temp.at('00:01:45'));
insert into relay.device (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at, previous_hash, grace_expires_at, installed_at)
values ('user-1', 'hostAAAAAAAAAAAA', 'phone', pg_temp.h('current'), 3, pg_temp.at('03:00'), pg_temp.h('before'), pg_temp.at('02:00'), pg_temp.at('00:00')),
  ('user-2', 'hostAAAAAAAAAAAA', 'phone', pg_temp.h('other account'), 1, pg_temp.at('03:00'), null, null, pg_temp.at('00:00')),
  ('user-1', 'hostBBBBBBBBBBBB', 'phone', pg_temp.h('rowless'), 1, pg_temp.at('03:00'), null, null, pg_temp.at('00:00'));
insert into relay.invite (token_hash, user_id, relay_host_id, relay_device_id, created_at, expires_at)
values (pg_temp.h('invite'), 'user-1', 'hostAAAAAAAAAAAA', 'tablet', relay.now(), pg_temp.at('00:09:30')),
  (pg_temp.h('spare'), 'user-1', 'hostAAAAAAAAAAAA', 'spare', relay.now(), pg_temp.at('00:09:30'));

select is(pg_temp.open('current'),
  row('opened', 'user-1', 4, 'resume', 'phone', pg_temp.at('00:01:45'), 3, 'current', pg_temp.at('03:00'), pg_temp.at('02:00'), null, null)::relay_v1.open_connection_result,
  'S9 the current token opens');
select is(pg_temp.open('before'),
  row('opened', 'user-1', 4, 'resume', 'phone', pg_temp.at('00:01:45'), 2, 'grace', pg_temp.at('03:00'), pg_temp.at('02:00'), null, null)::relay_v1.open_connection_result,
  'so does the one before, as grace, with its own version');
select is(pg_temp.open('invite'),
  row('opened', 'user-1', 4, 'invite', 'tablet', pg_temp.at('00:01:45'), null, null, null, null, pg_temp.at('00:00:15'), null)::relay_v1.open_connection_result,
  'an invite opens and is reserved for 15 s');
select is((select array[attempts::text, reserved_by] from relay.invite where token_hash = pg_temp.h('invite')), array['1', 'conn-1'],
  'for this connection, as one attempt');
select is((pg_temp.open('invite', conn => 'conn-2')).outcome, 'credential_refused', 'a second phone does not get it meanwhile');
select is((select attempts from relay.invite where token_hash = pg_temp.h('invite')), 1, 'which costs no attempt');
select is(pg_temp.owner('invite', 'invite'), 'user-1', 'S20 to the director a reserved invite is valid');
select test_clock.freeze(pg_temp.at('00:00:16'));
select is((pg_temp.open('invite', conn => 'conn-2')).outcome, 'credential_refused', 'S16 nor in the cooldown');
select is(pg_temp.owner('invite', 'invite'), 'user-1', 'S20 and one in cooldown as well');
select test_clock.freeze(pg_temp.at('00:00:17'));
select is((pg_temp.open('invite', conn => 'conn-2')).reserved_until, pg_temp.at('00:00:32'), 'S16 and then again');

select is(pg_temp.open('current', incarnation => '00000000-0000-0000-0000-00000000000b'),
  row('stale_cell_incarnation', null, null, null, null, null, null, null, null, null, null, null)::relay_v1.open_connection_result,
  'another process of the cell is refused');
select is((pg_temp.open('spare', incarnation => '00000000-0000-0000-0000-00000000000b')).reserved_until, null, 'and reserves nothing');
select is(pg_temp.open('nobody''s'),
  row('unknown_credential', null, null, null, null, null, null, null, null, null, null, null)::relay_v1.open_connection_result,
  'a token of nobody');
select is((pg_temp.open('current', host => 'hostBBBBBBBBBBBB')).outcome, 'unknown_credential', 'a token of another host');
select is((pg_temp.open('invite', host => 'hostBBBBBBBBBBBB')).outcome, 'unknown_credential', 'an invite of another host');

select is((pg_temp.open('rowless', host => 'hostBBBBBBBBBBBB')).outcome, 'not_here', 'a host that was never placed');
select is((pg_temp.open('other account', '[{"user_id": "user-2", "epoch": 9}]')).outcome, 'not_here', 'S6 a row that names another cell');
select is((pg_temp.open('current', '[{"user_id": "user-1", "epoch": 3}]')).outcome, 'not_here', 'S18 a seat of an older epoch');
select is((pg_temp.open('current', '[{"user_id": "user-1", "epoch": 5}]')).outcome, 'not_here', 'a seat of a newer epoch');
select is((pg_temp.open('spare', '[{"user_id": "user-1", "epoch": 5}]')).reserved_until, null, 'an invite is not reserved there');

select is(pg_temp.open('current', '[]'),
  row('host_offline', 'user-1', null, null, null, null, 3, null, null, null, null, null)::relay_v1.open_connection_result,
  'S9 a host without a control here');
select is((pg_temp.open('current', '[{"user_id": "user-2", "epoch": 9}]')).outcome, 'host_offline', 'only another account''s is here');
select is((pg_temp.open('spare', '[]')).outcome, 'host_offline', 'an invite of an absent host');
select is((select attempts from relay.invite where token_hash = pg_temp.h('spare')), 0, 'is not reserved: its attempts are for real ones');
select is((pg_temp.open('invite', '[]')).outcome, 'credential_refused', 'a refused credential comes before an absent host');
update relay.assignment set last_close_reason = 'signed-out', last_close_reason_at = relay.now();
select is((pg_temp.open('current', '[]')).host_close_reason, 'signed-out', 'S26 the phone learns why the host left');
select is((pg_temp.open('current')).host_close_reason, null, 'not while the host is here');
select test_clock.freeze(pg_temp.at('00:00:17') + interval '24 hours' - interval '1 ms');
update relay.device set resume_expires_at = relay.now() + interval '1 minute',
  grace_expires_at = case when previous_hash is not null then relay.now() + interval '1 minute' end;
select is((pg_temp.open('current', '[]')).host_close_reason, 'signed-out', 'S26 for 24 h');
select test_clock.advance('1 ms');
select is((pg_temp.open('current', '[]')).host_close_reason, null, 'S26 and no longer');

select is((pg_temp.open('current')).lease_expires_at, relay.now() + interval '90 s', 'a control whose renewal was missed answers as a new grant');
delete from relay.lease;
select is((pg_temp.open('current')).lease_expires_at, relay.now() + interval '90 s', 'so does one whose lease was swept');
select is((pg_temp.open('spare')).outcome, 'credential_refused', 'an expired invite is refused');
select is(pg_temp.owner('spare', 'invite'), null, 'S20 and is nobody''s to the director');
select is(array[pg_temp.owner('current', 'resume'), pg_temp.owner('before', 'resume'), pg_temp.owner('other account', 'resume')],
  array['user-1', 'user-1', 'user-2'], 'S9 whose token a phone asks the director about');
select is(array[pg_temp.owner('current', 'invite'), pg_temp.owner('current', 'resume', 'hostBBBBBBBBBBBB'), pg_temp.owner('x', 'resume')],
  array[null, null, null]::text[], 'not as an invite, not of another host, not an unknown one');

select test_clock.advance('1 minute');
select is(array[(pg_temp.open('current')).outcome, (pg_temp.open('before')).outcome], array['credential_refused', 'unknown_credential'],
  'an expired token is refused, a retired one spent');
select is(array[pg_temp.owner('current', 'resume'), pg_temp.owner('before', 'resume')], array[null, null]::text[], 'nobody''s, both');
update relay.device set resume_expires_at = relay.now() + interval '1 day', revoked_at = relay.now(),
  grace_expires_at = case when previous_hash is not null then relay.now() + interval '1 day' end
where user_id = 'user-1';
select is(array[(pg_temp.open('current')).outcome, (pg_temp.open('before')).outcome], array['unknown_credential', 'unknown_credential'],
  'revoked tokens are spent');
select is(pg_temp.owner('current', 'resume'), null, 'and nobody''s');

insert into relay.device (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at, installed_at)
values ('user-1', 'hostAAAAAAAAAAAA', 'phone again', pg_temp.h('current'), 1, relay.now() + interval '1 day', pg_temp.at('00:00') - interval '1 day');
select is((pg_temp.open('current')).relay_device_id, 'phone again', 'of two devices with one token the one that works');
insert into relay.device (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at, previous_hash, grace_expires_at,
  installed_at)
values ('user-1', 'hostAAAAAAAAAAAA', 'phone that had it', pg_temp.h('newer'), 2, relay.now() + interval '1 day', pg_temp.h('current'),
  relay.now() + interval '1 day', relay.now());
select is((pg_temp.open('current')).accepted_as, 'current', 'and rather the one whose current token it is');
update relay.invite set expires_at = relay.now() + interval '1 minute', invalidated_at = relay.now() where token_hash = pg_temp.h('spare');
update relay.invite set expires_at = relay.now() + interval '1 minute', consumed_at = relay.now() where token_hash = pg_temp.h('invite');
select is(array[(pg_temp.open('spare')).outcome, (pg_temp.open('invite')).outcome], array['unknown_credential', 'unknown_credential'],
  'invalidated and consumed invites are spent');
select is(array[pg_temp.owner('spare', 'invite'), pg_temp.owner('invite', 'invite')], array[null, null]::text[], 'S20 nobody''s, both');

-- a reserve cell: the row trails the seat
select relay_v1.register_cell('cell-a', 'https://a', 'here', 100);
insert into relay.device (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at, installed_at)
values ('user-3', 'hostCCCCCCCCCCCC', 'phone', pg_temp.h('third'), 1, relay.now() + interval '1 day', relay.now());
create function pg_temp.third(seats jsonb) returns text language sql as $$
  select concat_ws(' ', r.outcome, r.epoch, r.lease_expires_at - relay.now()) from pg_temp.open('third', seats, host => 'hostCCCCCCCCCCCC') r
$$;
select is(pg_temp.third('[{"user_id": "user-3", "epoch": 5}]'), 'not_here', 'a db cell serves no seat that the row does not name');
update relay.cell set admit_mode = 'reserve';
select is(pg_temp.third('[{"user_id": "user-3", "epoch": 5}]'), 'opened 5 00:01:30', 'a reserve cell serves a host that has no row yet, at the epoch of its seat');
select is(pg_temp.third('[]'), 'not_here', 'not one that is not here');
insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at) values ('user-3', 'hostCCCCCCCCCCCC', 'cell-b', 4, relay.now());
select is(pg_temp.third('[{"user_id": "user-3", "epoch": 5}]'), 'opened 5 00:01:30', 'and one whose row still names another cell, at a lower epoch');
select is(pg_temp.third('[{"user_id": "user-3", "epoch": 4}]'), 'not_here', 'P2: not at the epoch that another cell has');
select is(pg_temp.third('[{"user_id": "user-3", "epoch": 3}]'), 'not_here', 'nor at a lower one');
update relay.assignment set cell_id = 'cell-a', epoch = 6 where user_id = 'user-3';
select is(pg_temp.third('[{"user_id": "user-3", "epoch": 5}]'), 'not_here', 'nor below a row of its own');
select * from finish();
