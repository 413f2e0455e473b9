-- confirm_resume and revoke_device: every outcome (wire 2.10; S9, S10, S14). A basis that is closed, too old or of another
-- generation is the cell's to leave out (S5, S11): then there is none.
select plan(37);

create function pg_temp.h(name text) returns text language sql as $$ select rpad(translate(name, ' ''', '__'), 43, '_') $$;
create function pg_temp.confirm(req text, conn text, version int default null, device text default 'phone')
returns relay_v1.confirm_resume_result language sql as $$
  select relay_v1.confirm_resume(user_id => 'user-1', relay_host_id => 'hostAAAAAAAAAAAA', cell_id => 'cell-a',
    incarnation => '00000000-0000-0000-0000-00000000000a', req_id => req, basis_conn_id => conn,
    basis => case when version is not null then jsonb_build_object('relay_device_id', device, 'credential_version', version) end)
$$;
create function pg_temp.install(req text, token text) returns text language sql as $$
  select (relay_v1.install_credential('user-1', 'hostAAAAAAAAAAAA', 'cell-a', '00000000-0000-0000-0000-00000000000a', req, 'phone',
    pg_temp.h(token), 'authenticated-direct', direct_auth_id => req)).outcome
$$;
create function pg_temp.revoke(device text default 'phone', host text default 'hostAAAAAAAAAAAA') returns text language sql as $$
  select relay_v1.revoke_device('user-1', host, 'cell-a', '00000000-0000-0000-0000-00000000000a', device)
$$;
create function pg_temp.nothing(outcome text) returns relay_v1.confirm_resume_result language sql as $$
  select row(outcome, null, null, null, null, null)::relay_v1.confirm_resume_result
$$;
create function pg_temp.days(n int) returns timestamptz language sql as $$ select relay.now() + n * interval '24 hours' $$;

select test_clock.freeze('2030-01-01 00:00:00+00');
insert into relay.cell_runtime (cell_id, incarnation, started_at, ready, heard_at, enforced_units, inclusion_watermark)
values ('cell-a', '00000000-0000-0000-0000-00000000000a', relay.now(), true, relay.now(), 0, 0);

select is(pg_temp.confirm('c1', 'conn-1', 1), pg_temp.nothing('credential_not_found'), 'no such device');
select is(pg_temp.install('i1', 'one'), 'committed', 'a device');
select test_clock.advance('10 days');
select is(pg_temp.confirm('c1', 'conn-1'), pg_temp.nothing('confirmation_not_active'), 'S11 no basis');
select is((select resume_expires_at from relay.device), pg_temp.days(20), 'S10 and nothing renewed');
select is(pg_temp.confirm('c1', 'conn-1', 1), row('confirmed', 1, 'current', true, pg_temp.days(30), null)::relay_v1.confirm_resume_result,
  'S9 the current version is renewed, 30 d from now');
select is((select resume_expires_at from relay.device), pg_temp.days(30), 'in the device''s row');
select test_clock.advance('1 day');
select is(pg_temp.confirm('c1', 'conn-1', 1), row('confirmed', 1, 'current', true, pg_temp.days(29), null)::relay_v1.confirm_resume_result,
  'a replay answers the same');
select is(pg_temp.confirm('c1', 'conn-1'), row('confirmed', 1, 'current', true, pg_temp.days(29), null)::relay_v1.confirm_resume_result,
  'also without the basis');
select is((select resume_expires_at from relay.device), pg_temp.days(29), 'and renews nothing');
select is(pg_temp.confirm('c1', 'conn-2', 1), pg_temp.nothing('confirmation_tuple_mismatch'), 'the request belongs to its connection');
select is(pg_temp.confirm('c1', 'conn-2'), pg_temp.nothing('confirmation_tuple_mismatch'), 'whether that one is open or not');
select is(pg_temp.confirm('c1', 'conn-1', 1, 'tablet'), pg_temp.nothing('confirmation_tuple_mismatch'), 'and to its device');
select is(pg_temp.confirm('c1', 'conn-1', 2), pg_temp.nothing('confirmation_tuple_mismatch'), 'and to its version');

-- S14: confirm and rotation, in both orders
select is(pg_temp.install('i2', 'two'), 'committed', 'S14 a rotation');
select test_clock.advance('12 hours');
select is(pg_temp.confirm('c2', 'conn-1', 1),
  row('confirmed', 2, 'grace', false, pg_temp.days(30) - interval '12 hours', pg_temp.days(1) - interval '12 hours')::relay_v1.confirm_resume_result,
  'S14 the version before is confirmed under grace, and not renewed');
select is((select resume_expires_at from relay.device), pg_temp.days(30) - interval '12 hours', 'S14 nor is the one after it');
select is(pg_temp.confirm('c3', 'conn-3', 2),
  row('confirmed', 2, 'current', true, pg_temp.days(30), pg_temp.days(1) - interval '12 hours')::relay_v1.confirm_resume_result,
  'S14 which is when it resumes');
select test_clock.advance('-12 hours');
select is(pg_temp.confirm('c1', 'conn-1'), row('confirmed', 1, 'current', true, pg_temp.days(29), null)::relay_v1.confirm_resume_result,
  'S14 a replay from before the rotation answers as then');
select is(pg_temp.install('i3', 'three'), 'committed', 'S14 another rotation');
select is(pg_temp.confirm('c4', 'conn-1', 1), pg_temp.nothing('reject-retired'), 'S14 the oldest version is retired');
select test_clock.advance('1 day');
select is(pg_temp.confirm('c4', 'conn-3', 2), pg_temp.nothing('reject-retired'), 'one whose grace is over as well');
select is(pg_temp.confirm('c4', 'conn-4', 3), row('confirmed', 3, 'current', true, pg_temp.days(30), null)::relay_v1.confirm_resume_result,
  'a refused request may try again; a grace that is over is not named');
select test_clock.advance('30 days');
select is(pg_temp.confirm('c5', 'conn-4', 3), pg_temp.nothing('reject-expired'), 'an expired version');

-- S14: revoke
select is(pg_temp.install('i4', 'four'), 'committed', 'a fresh token');
insert into relay.invite (token_hash, user_id, relay_host_id, relay_device_id, created_at, expires_at, attempts, reserved_by, reserved_until)
values (pg_temp.h('a'), 'user-1', 'hostAAAAAAAAAAAA', 'phone', relay.now(), pg_temp.days(1), 0, null, null),
  (pg_temp.h('b'), 'user-1', 'hostAAAAAAAAAAAA', 'phone', relay.now(), pg_temp.days(1), 1, 'conn-9', pg_temp.days(1)),
  (pg_temp.h('c'), 'user-1', 'hostAAAAAAAAAAAA', 'tablet', relay.now(), pg_temp.days(1), 0, null, null);
select is(relay_v1.revoke_device('user-1', 'hostAAAAAAAAAAAA', 'cell-a', '00000000-0000-0000-0000-00000000000b', 'phone'),
  'stale_cell_incarnation', 'another process of the cell may not revoke');
select is((select revoked_at from relay.device), null, 'and does not');
select is(pg_temp.revoke('phone', 'hostBBBBBBBBBBBB'), 'credential_not_found', 'nothing of another host');
select is(pg_temp.revoke(), 'revoked', 'S14 revoked');
select is(pg_temp.confirm('c6', 'conn-5', 4), pg_temp.nothing('reject-revoked'), 'S14 the current version');
select is(pg_temp.confirm('c6', 'conn-4', 3), pg_temp.nothing('reject-revoked'), 'S14 any version');
select is(pg_temp.confirm('c4', 'conn-4'), row('confirmed', 3, 'current', true, pg_temp.days(0), null)::relay_v1.confirm_resume_result,
  'S14 a replay from before answers as then');
select results_eq($$ select relay.invite_state(i, relay.now()) from relay.invite i order by token_hash $$,
  array['invalidated', 'invalidated', 'available'], 'its invites are ended, a reserved one too, not another device''s');
select is(pg_temp.revoke(), 'revoked', 'once more is the same');
select is(pg_temp.revoke('tablet'), 'revoked', 'a device that has only an invite');
select is(pg_temp.revoke('tablet'), 'credential_not_found', 'has nothing then');
select is(array[pg_temp.install('i5', 'five'), (pg_temp.confirm('c6', 'conn-4', 4)).outcome], array['committed', 'reject-retired'],
  'S14 a new install brings the device back, the revoked version never');

select is((relay_v1.confirm_resume('user-1', 'hostAAAAAAAAAAAA', 'cell-a', '00000000-0000-0000-0000-00000000000b', 'c7', 'conn-6',
  '{"relay_device_id": "phone", "credential_version": 5}')).outcome, 'stale_cell_incarnation', 'another process of the cell may not confirm');
select * from finish();
