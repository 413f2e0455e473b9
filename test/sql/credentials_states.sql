-- States of invites and resume tokens, row by row of the tables in invite_state, resume_state and credential_standing.
select plan(31);

create function pg_temp.invite(
  attempts int default 0, reserved_until timestamptz default null, consumed_at timestamptz default null,
  invalidated_at timestamptz default null, expires_at timestamptz default '2030-01-01 00:09:30+00')
returns relay.invite language sql as $$
  select row('t', 'u', 'h', 'd', '2030-01-01 00:00:00+00', expires_at, attempts,
    case when attempts > 0 then 'conn' end, reserved_until, consumed_at, invalidated_at)::relay.invite
$$;
create function pg_temp.at(clock text) returns timestamptz language sql as $$ select ('2030-01-01 ' || clock || '+00')::timestamptz $$;

select is(relay.invite_state(pg_temp.invite(), pg_temp.at('00:01')), 'available', 'a new invite is available');
select is(relay.invite_state(pg_temp.invite(), pg_temp.at('00:09:29.999')), 'available', 'to the last millisecond');
select is(relay.invite_state(pg_temp.invite(), pg_temp.at('00:09:30')), 'expired', 'and expired at its end');
select is(relay.invite_state(pg_temp.invite(1, pg_temp.at('00:01:15')), pg_temp.at('00:01:14.999')), 'reserved', 'reserved until its time is up');
select is(relay.invite_state(pg_temp.invite(1, pg_temp.at('00:01:15')), pg_temp.at('00:01:15')), 'cooldown', 'a time-out needs no write');
select is(relay.invite_state(pg_temp.invite(1, pg_temp.at('00:01:15')), pg_temp.at('00:01:16.999')), 'cooldown', 'cooldown lasts 2 s');
select is(relay.invite_state(pg_temp.invite(1, pg_temp.at('00:01:15')), pg_temp.at('00:01:17')), 'available', 'S16 then it is usable again');
select is(relay.invite_state(pg_temp.invite(1, pg_temp.at('00:09:40')), pg_temp.at('00:09:35')), 'reserved', 'a reservation outlives the end of the invite');
select is(relay.invite_state(pg_temp.invite(1, pg_temp.at('00:09:40')), pg_temp.at('00:09:41')), 'expired', 'and no cooldown does');
select is(relay.invite_state(pg_temp.invite(5, pg_temp.at('00:01:15')), pg_temp.at('00:01:14')), 'reserved', 'the fifth attempt is an attempt');
select is(relay.invite_state(pg_temp.invite(5, pg_temp.at('00:01:15')), pg_temp.at('00:01:15')), 'invalidated', 'the fifth failure ends the invite');
select is(relay.invite_state(pg_temp.invite(5, pg_temp.at('00:01:15')), pg_temp.at('00:20')), 'invalidated', 'also after its end');
select is(relay.invite_state(pg_temp.invite(1, pg_temp.at('00:01:15'), pg_temp.at('00:01:10')), pg_temp.at('00:01:12')), 'consumed', 'consumed wins over reserved');
select is(relay.invite_state(pg_temp.invite(1, pg_temp.at('00:01:15'), null, pg_temp.at('00:01:10')), pg_temp.at('00:01:12')), 'invalidated', 'invalidated wins over reserved');
select is(relay.invite_state(null, pg_temp.at('00:01')), null, 'no invite has no state');

create function pg_temp.device(revoked_at timestamptz default null, previous_hash text default 'p')
returns relay.device language sql as $$
  select row('u', 'h', 'd', 'c', 3, '2030-01-01 00:10+00', previous_hash,
    case when previous_hash is not null then timestamptz '2030-01-01 00:05+00' end, revoked_at, '2030-01-01 00:00+00')::relay.device
$$;
select is(relay.resume_state(pg_temp.device(), 3, pg_temp.at('00:09:59.999')), 'current', 'the current version');
select is(relay.resume_state(pg_temp.device(), 3, pg_temp.at('00:10')), 'expired', 'the current version, 30 d on');
select is(relay.resume_state(pg_temp.device(), 2, pg_temp.at('00:04:59.999')), 'grace', 'the version before, within its grace');
select is(relay.resume_state(pg_temp.device(), 2, pg_temp.at('00:05')), 'retired', 'the version before, after its grace');
select is(relay.resume_state(pg_temp.device(null, null), 2, pg_temp.at('00:01')), 'retired', 'the version before, without a grace');
select is(relay.resume_state(pg_temp.device(), 1, pg_temp.at('00:01')), 'retired', 'an older version');
select is(relay.resume_state(pg_temp.device(pg_temp.at('00:01')), 3, pg_temp.at('00:02')), 'revoked', 'revoked, the current version');
select is(relay.resume_state(pg_temp.device(pg_temp.at('00:01')), 2, pg_temp.at('00:02')), 'revoked', 'revoked, the version in grace');
select is(relay.resume_state(null, 1, pg_temp.at('00:01')), 'retired', 'no device has only retired versions');

select is(relay.version_shown(pg_temp.device(), 'c'), 3::bigint, 'the current hash shows the current version');
select is(relay.version_shown(pg_temp.device(), 'p'), 2::bigint, 'the previous hash shows the version before');
select is(relay.version_shown(pg_temp.device(null, null), 'x'), null, 'another hash shows none');

select results_eq(
  $$ select s, relay.credential_standing(s) from unnest(array['available', 'current', 'grace']) s $$,
  $$ select s, 'usable' from unnest(array['available', 'current', 'grace']) s $$, 'usable states');
select results_eq(
  $$ select s, relay.credential_standing(s) from unnest(array['reserved', 'cooldown', 'expired']) s $$,
  $$ select s, 'refused' from unnest(array['reserved', 'cooldown', 'expired']) s $$, 'refused states: 4401');
select results_eq(
  $$ select s, relay.credential_standing(s) from unnest(array['consumed', 'invalidated', 'revoked', 'retired', null]) s $$,
  $$ select s, 'spent' from unnest(array['consumed', 'invalidated', 'revoked', 'retired', null]) s $$, 'spent states: 4409');

select set_eq(
  $$ select relay.limit_of(n) from unnest(array['inviteTtlMs', 'inviteSkewMs', 'inviteReservationMs', 'inviteCooldownMs',
    'inviteMaxAttempts', 'invitesPerAccountPerMinute', 'directAuthorizationMs', 'resumeTtlMs', 'credentialGraceMs']) n $$,
  array[600000, 30000, 15000, 2000, 5, 30, 2592000000, 86400000]::bigint[], 'the constants of wire 1.7');
select * from finish();
