-- sweep_credentials: what goes, what stays, and how much at a time.
select plan(10);

create function pg_temp.h(name text) returns text language sql as $$ select rpad(name, 43, '_') $$;
create function pg_temp.at(age text, early text default '0 s') returns timestamptz language sql as $$
  select relay.now() - age::interval - early::interval
$$;
create function pg_temp.rows() returns setof text language sql as $$
  select token_hash from relay.invite
  union all select req_id from relay.install_result
  union all select direct_auth_id from relay.direct_authorization
  union all select req_id from relay.confirm_result
  union all select user_id from relay.rate_window
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select is(relay_v1.sweep_credentials(), 0, 'nothing to do');
insert into relay.device (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at, installed_at, revoked_at)
values ('u', 'hostAAAAAAAAAAAA', 'phone', pg_temp.h('t'), 1, pg_temp.at('1 year'), pg_temp.at('2 years'), pg_temp.at('1 year'));
insert into relay.invite (token_hash, user_id, relay_host_id, relay_device_id, created_at, expires_at)
values (pg_temp.h('kept'), 'u', 'h', 'd', relay.now(), pg_temp.at('24 hours')),
  (pg_temp.h('gone'), 'u', 'h', 'd', relay.now(), pg_temp.at('24 hours', '1 ms'));
insert into relay.install_result (user_id, relay_host_id, relay_device_id, req_id, authorization_mode, current_version, resume_expires_at, committed_at)
values ('u', 'h', 'd', 'kept', 'relay-basis', 1, relay.now(), pg_temp.at('720 hours')),
  ('u', 'h', 'd', 'gone', 'relay-basis', 1, relay.now(), pg_temp.at('720 hours', '1 ms'));
insert into relay.direct_authorization (user_id, relay_host_id, direct_auth_id, relay_device_id, recorded_at, expires_at)
values ('u', 'h', 'kept', 'd', pg_temp.at('720 hours'), relay.now()), ('u', 'h', 'gone', 'd', pg_temp.at('720 hours', '1 ms'), relay.now());
insert into relay.confirm_result (user_id, relay_host_id, req_id, basis_conn_id, relay_device_id, basis_version, current_version, accepted_as,
  resume_expires_at, confirmed_at)
values ('u', 'h', 'kept', 'c', 'd', 1, 1, 'current', relay.now(), pg_temp.at('24 hours')),
  ('u', 'h', 'gone', 'c', 'd', 1, 1, 'current', relay.now(), pg_temp.at('24 hours', '1 ms'));
insert into relay.rate_window (user_id, action, started_at, used)
values ('kept', 'invite-create', pg_temp.at('1 hour'), 1), ('gone', 'invite-create', pg_temp.at('1 hour', '1 ms'), 1);

select is(relay_v1.sweep_credentials(max_rows => 0), 0, 'no more than it is told: none');
select is(relay_v1.sweep_credentials(max_rows => 2), 2, 'two');
select is((select count(*) from pg_temp.rows()), 8::bigint, 'of ten');
select is(relay_v1.sweep_credentials(max_rows => 2), 2, 'two more');
select is(relay_v1.sweep_credentials(), 1, 'the last one');
select is(relay_v1.sweep_credentials(), 0, 'nothing after that');
select set_eq($$ select rtrim(r, '_') from pg_temp.rows() r $$, array['kept'], 'what is not old enough stays');
select is((select count(*) from pg_temp.rows()), 5::bigint, 'one of each');
select is((select count(*) from relay.device), 1::bigint, 'and every device');
select * from finish();
