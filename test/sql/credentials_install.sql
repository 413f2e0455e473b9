-- install_credential and install_status: every outcome (wire 2.10; S9, S12, S13, S17).
select plan(42);

create function pg_temp.h(name text) returns text language sql as $$ select rpad(translate(name, ' ''', '__'), 43, '_') $$;
create function pg_temp.at(clock text) returns timestamptz language sql as $$ select ('2030-01-01 ' || clock || '+00')::timestamptz $$;
create function pg_temp.by_basis(
  req text, token text, conn text default 'conn-1', invite text default 'invite', device text default 'phone', expected text default null)
returns relay_v1.install_credential_result language sql as $$
  select relay_v1.install_credential(user_id => 'user-1', relay_host_id => 'hostAAAAAAAAAAAA', cell_id => 'cell-a',
    incarnation => '00000000-0000-0000-0000-00000000000a', req_id => req, relay_device_id => device, new_token_hash => pg_temp.h(token),
    authorization_mode => 'relay-basis', expected_current_hash => pg_temp.h(expected),
    basis => case when conn is not null then jsonb_build_object('conn_id', conn, 'token_hash', pg_temp.h(invite)) end)
$$;
create function pg_temp.direct(req text, token text, auth text, device text default 'phone', expected text default null)
returns relay_v1.install_credential_result language sql as $$
  select relay_v1.install_credential(user_id => 'user-1', relay_host_id => 'hostAAAAAAAAAAAA', cell_id => 'cell-a',
    incarnation => '00000000-0000-0000-0000-00000000000a', req_id => req, relay_device_id => device, new_token_hash => pg_temp.h(token),
    authorization_mode => 'authenticated-direct', expected_current_hash => pg_temp.h(expected), direct_auth_id => auth)
$$;
create function pg_temp.invited(token text, device text default 'phone', conn text default 'conn-1') returns void language sql as $$
  insert into relay.invite (token_hash, user_id, relay_host_id, relay_device_id, created_at, expires_at, attempts, reserved_by, reserved_until)
  values (pg_temp.h(token), 'user-1', 'hostAAAAAAAAAAAA', device, relay.now(), relay.now() + interval '570 s',
    case when conn is null then 0 else 1 end, conn, case when conn is not null then relay.now() + interval '15 s' end)
$$;
create function pg_temp.state(token text) returns text language sql as $$
  select relay.invite_state(i, relay.now()) from relay.invite i where i.token_hash = pg_temp.h(token)
$$;
create function pg_temp.status(req text, device text default 'phone') returns relay_v1.install_credential_result language sql as $$
  select relay_v1.install_status('user-1', 'hostAAAAAAAAAAAA', device, req)
$$;
create function pg_temp.nothing(outcome text) returns relay_v1.install_credential_result language sql as $$
  select row(outcome, null, null, null, null)::relay_v1.install_credential_result
$$;

select test_clock.freeze(pg_temp.at('00:00'));
insert into relay.cell_runtime (cell_id, incarnation, started_at, ready, heard_at, enforced_units, inclusion_watermark)
values ('cell-a', '00000000-0000-0000-0000-00000000000a', relay.now(), true, relay.now(), 0, 0);
select pg_temp.invited('invite'), pg_temp.invited('other device''s', 'tablet');

select is(pg_temp.by_basis('r1', 'one', null), pg_temp.nothing('invalid_relay_basis'), 'no basis');
select is(pg_temp.by_basis('r1', 'one', 'conn-2'), pg_temp.nothing('invalid_relay_basis'), 'a connection that does not hold the invite');
select is(pg_temp.by_basis('r1', 'one', 'conn-1', 'none'), pg_temp.nothing('invalid_relay_basis'), 'no such invite');
select is(pg_temp.by_basis('r1', 'one', 'conn-1', 'other device''s'), pg_temp.nothing('invalid_relay_basis'), 'another device''s invite');
select is(pg_temp.by_basis('r1', 'one', expected => 'x'), pg_temp.nothing('current_hash_mismatch'), 'a new device has no current hash');
select is(pg_temp.status('r1'), pg_temp.nothing('not_found'), 'S17 a refused install is not found');
select is((select count(*) from relay.device), 0::bigint, 'and makes no device');
select is(pg_temp.state('invite'), 'reserved', 'and leaves the invite as it was');
select is(pg_temp.by_basis('r1', 'one'),
  row('committed', 'relay-basis', 1, pg_temp.at('00:00') + interval '720 hours', null)::relay_v1.install_credential_result,
  'S9, S17 the same request may try again: version 1, 30 d, no grace');
select is(pg_temp.state('invite'), 'consumed', 'the invite is consumed');
select is(pg_temp.state('other device''s'), 'reserved', 'another device''s is not');
select is(pg_temp.status('r1'), pg_temp.by_basis('r1', 'one', null), 'S12, S13 status and a replay answer alike, without a basis');
select is(pg_temp.status('r1'), pg_temp.direct('r1', 'two', 'auth-0'), 'S12 whatever else the replay says');
select is((select count(*) from relay.direct_authorization), 0::bigint, 'and records nothing');
select is((select array[current_hash, version::text] from relay.device), array[pg_temp.h('one'), '1'], 'and changes nothing');
select is(pg_temp.status('r1', 'tablet'), pg_temp.nothing('not_found'), 'a request belongs to its device');
select is(pg_temp.by_basis('r2', 'two'), pg_temp.nothing('invalid_relay_basis'), 'a consumed invite vouches for nothing more');

select pg_temp.invited('second');
select test_clock.advance('14.999 seconds');
select is((pg_temp.by_basis('r3', 'two', invite => 'second', expected => 'x')).outcome, 'current_hash_mismatch', 'not the current hash');
select is(pg_temp.by_basis('r3', 'two', invite => 'second', expected => 'one'),
  row('committed', 'relay-basis', 2, relay.now() + interval '720 hours', relay.now() + interval '24 hours')::relay_v1.install_credential_result,
  'the next version: 30 d anew, 24 h of grace for the one before');
select pg_temp.invited('third');
select test_clock.advance('15 seconds');
select is((pg_temp.by_basis('r4', 'three', invite => 'third')).outcome, 'invalid_relay_basis', 'a reservation that timed out vouches for nothing');
select is(pg_temp.state('third'), 'cooldown', 'its invite lives on');

select pg_temp.invited('open', conn => null);
select is((pg_temp.direct('r5', 'three', null)).outcome, 'invalid_direct_authorization', 'no authorization');
select is((pg_temp.direct('r5', 'three', 'auth-1', expected => 'one')).outcome, 'current_hash_mismatch', 'the previous hash is not the current one');
select is((select array[recorded_at, expires_at, used_at] from relay.direct_authorization),
  array[relay.now(), relay.now() + interval '30 seconds', null], 'the authorization is recorded, and not used');
select is((pg_temp.direct('r5', 'three', 'auth-1', 'tablet')).outcome, 'invalid_direct_authorization', 'it is this device''s alone');
select is(array[pg_temp.state('third'), pg_temp.state('open')], array['cooldown', 'available'], 'open invites are as they were');
select test_clock.advance('29.999 seconds');
select is(pg_temp.direct('r5', 'three', 'auth-1', expected => 'two'),
  row('committed', 'authenticated-direct', 3, relay.now() + interval '720 hours', relay.now() + interval '24 hours')::relay_v1.install_credential_result,
  'within its 30 s it vouches');
select is(array[pg_temp.state('third'), pg_temp.state('open')], array['invalidated', 'invalidated'], 'and ends all open invites of the device');
select is(pg_temp.state('second'), 'consumed', 'not a consumed one');
select is((pg_temp.direct('r6', 'four', 'auth-1')).outcome, 'invalid_direct_authorization', 'for one install');
select is(pg_temp.status('r5'), pg_temp.direct('r5', 'four', 'auth-1'), 'S12 which may be replayed');
select is(pg_temp.status('r5'), pg_temp.by_basis('r5', 'four'), 'S12 in another mode, too');
select pg_temp.direct('r7', 'four', 'auth-2', expected => 'x');
select test_clock.advance('30 seconds');
select is((pg_temp.direct('r7', 'four', 'auth-2')).outcome, 'invalid_direct_authorization', 'after its 30 s it is too late');

update relay.device set revoked_at = relay.now();
select is(pg_temp.direct('r8', 'four', 'auth-3'),
  row('committed', 'authenticated-direct', 4, relay.now() + interval '720 hours', null)::relay_v1.install_credential_result,
  'a revoked token gets no grace');
select is((select revoked_at from relay.device), null, 'and the device is no longer revoked');
select test_clock.advance('720 hours');
select is((pg_temp.direct('r9', 'five', 'auth-4')).grace_expires_at, null, 'nor does an expired one');
select is((select array[current_hash, previous_hash, version::text] from relay.device), array[pg_temp.h('five'), null, '5'], 'its hash is forgotten');
select test_clock.advance('719 hours');
select is((pg_temp.direct('r10', 'six', 'auth-5')).grace_expires_at, relay.now() + interval '24 hours', 'one in its last hour has its 24 h');

select is((relay_v1.install_credential('user-1', 'hostAAAAAAAAAAAA', 'cell-a', '00000000-0000-0000-0000-00000000000b', 'r11', 'phone',
  pg_temp.h('seven'), 'authenticated-direct', direct_auth_id => 'auth-6')).outcome, 'stale_cell_incarnation', 'another process of the cell is refused');
select throws_ok($$ select relay_v1.install_credential('user-1', 'hostAAAAAAAAAAAA', 'cell-a', '00000000-0000-0000-0000-00000000000a', 'r11', 'phone',
  pg_temp.h('seven'), 'on my word') $$, 'RL001', null, 'a mode that does not exist is misuse');

create function pg_temp.fails() returns trigger language plpgsql as $$ begin raise exception 'injected' using errcode = 'XX000'; end $$;
create trigger injected before insert on relay.install_result for each row execute function pg_temp.fails();
select throws_ok($$ select pg_temp.direct('r12', 'seven', 'auth-7') $$, 'XX000', 'injected', 'an unknown failure is the caller''s to see');
drop trigger injected on relay.install_result;
select is(array[(pg_temp.status('r12')).outcome, (pg_temp.direct('r12', 'seven', 'auth-7')).outcome], array['not_found', 'committed'],
  'S17 nothing of it is left, and the same request works');
select * from finish();
