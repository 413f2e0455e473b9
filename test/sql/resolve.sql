-- resolve: where the host of a phone's credential is seated, and what is known of one that is not (F7, P8).
\ir helpers/fleet.sql
select plan(10);

create function pg_temp.where_is(host text default 'h') returns text language sql as $$
  select concat_ws(' ', r.outcome, r.user_id, r.cell_id, r.epoch, r.cell_url, r.region, r.lease_expires_at - relay.now())
  from relay_v1.resolve(host, rpad('token', 43, '_'), 'resume') r
$$;
select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell('x', 'https://x', 'here', 100), pg_temp.beat('x');
insert into relay.device (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at, installed_at)
values ('user', 'h', 'phone', rpad('token', 43, '_'), 1, relay.now() + interval '1 day', relay.now());

select throws_ok($$ select relay_v1.resolve('h', 'token', 'other') $$, 'RL001', null, 'no such kind of credential');
select is(pg_temp.where_is('other'), 'invalid_credential', 'a credential of no device of this host');
select is(pg_temp.where_is(), 'unseated user', 'a host without a row');
select pg_temp.seat('h', 'x');
select is(pg_temp.where_is(), 'seated user x 4 https://x here 00:01:30', 'a host whose home is live, as a grant of now');
select pg_temp.hold('h', 'x');
select is(pg_temp.where_is(), 'seated user x 4 https://x here 00:01:45', 'or to the end of its lease');
select relay_v1.set_admit_mode('x', 'reserve');
select is(pg_temp.where_is(), 'seated user x 4 https://x here 00:01:45', 'on a reserve cell, too');
select pg_temp.beat('x', ready => false);
select is(pg_temp.where_is(), 'unseated user x 4', 'a home that is not ready: the row, and nowhere to dial');
select pg_temp.beat('x');
select test_clock.advance('45 s');
select is(pg_temp.where_is(), 'unseated user x 4', 'a home that is silent');
delete from relay.cell_runtime;
select is(pg_temp.where_is(), 'unseated user x 4', 'one that was never heard');
delete from relay.cell;
select is(pg_temp.where_is(), 'unseated user x 4', 'and one that is gone');
select * from finish();
