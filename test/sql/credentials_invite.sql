-- create_invite and release_invite (wire 2.10; S16).
select plan(29);

create function pg_temp.h(name text) returns text language sql as $$ select rpad(translate(name, ' ''', '__'), 43, '_') $$;
create function pg_temp.make(token text, device text default 'phone', host text default 'hostAAAAAAAAAAAA', account text default 'user-1')
returns relay_v1.create_invite_result language sql as $$
  select relay_v1.create_invite(user_id => account, relay_host_id => host, cell_id => 'cell-a',
    incarnation => '00000000-0000-0000-0000-00000000000a', relay_device_id => device, token_hash => pg_temp.h(token))
$$;
create function pg_temp.state(token text) returns text language sql as $$
  select relay.invite_state(i, relay.now()) from relay.invite i where i.token_hash = pg_temp.h(token)
$$;
create function pg_temp.open(token text, conn text) returns text language sql as $$
  select (relay_v1.open_connection(cell_id => 'cell-a', incarnation => '00000000-0000-0000-0000-00000000000a',
    relay_host_id => 'hostAAAAAAAAAAAA', credential_hash => pg_temp.h(token), conn_id => conn,
    seats => '[{"user_id": "user-1", "epoch": 4}]')).outcome
$$;
create function pg_temp.release(token text, conn text, host text default 'hostAAAAAAAAAAAA') returns text language sql as $$
  select relay_v1.release_invite(cell_id => 'cell-a', incarnation => '00000000-0000-0000-0000-00000000000a',
    relay_host_id => host, token_hash => pg_temp.h(token), conn_id => conn)
$$;

create function pg_temp.fail(token text, conn text) returns text language plpgsql as $$
declare
  v_opened text;
begin
  perform test_clock.advance('2 seconds');
  v_opened := pg_temp.open(token, conn);
  return v_opened || ' ' || pg_temp.release(token, conn);
end
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
insert into relay.cell_runtime (cell_id, incarnation, started_at, ready, heard_at, enforced_units, inclusion_watermark)
values ('cell-a', '00000000-0000-0000-0000-00000000000a', relay.now(), true, relay.now(), 0, 0);
insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
values ('user-1', 'hostAAAAAAAAAAAA', 'cell-a', 4, relay.now());

select is(pg_temp.make('a'), row('created', '2030-01-01 00:09:30+00'::timestamptz, 5)::relay_v1.create_invite_result,
  'created: 600 s less 30 s for skew, five attempts');
select is(pg_temp.state('a'), 'available', 'and available');
select is(pg_temp.make('b'), row('created', '2030-01-01 00:09:30+00'::timestamptz, 5)::relay_v1.create_invite_result, 'another for the same device');
select is(pg_temp.state('a'), 'invalidated', 'ends the earlier one');
select is(pg_temp.state('b'), 'available', 'and is available itself');
select is((pg_temp.make('c', 'tablet')).outcome, 'created', 'one for another device');
select is(pg_temp.state('b'), 'available', 'leaves this one alone');
select is((pg_temp.make('d', 'phone', 'hostBBBBBBBBBBBB')).outcome, 'created', 'one of another host');
select is(pg_temp.state('b'), 'available', 'leaves this one alone, too');
select is(pg_temp.open('b', 'conn-1'), 'opened', 'a phone holds it');
select is((pg_temp.make('e')).outcome, 'created', 'a newer invite');
select is(pg_temp.state('b'), 'invalidated', 'ends a reserved one as well');
select is(pg_temp.release('b', 'conn-1'), 'not_reserved', 'whose release then changes nothing');

select is((relay_v1.create_invite('user-1', 'hostAAAAAAAAAAAA', 'cell-a', '00000000-0000-0000-0000-00000000000b', 'phone', pg_temp.h('z'))).outcome,
  'stale_cell_incarnation', 'another process of the cell is refused');
select is(pg_temp.state('e'), 'available', 'and ends nothing');
select is((relay_v1.create_invite('user-1', 'hostAAAAAAAAAAAA', 'cell-x', '00000000-0000-0000-0000-00000000000a', 'phone', pg_temp.h('z'))).outcome,
  'stale_cell_incarnation', 'so is a cell that was never heard');

-- 5 so far, the refused ones not counted
select is((select count(*) from generate_series(6, 30) n, pg_temp.make('n' || n) m where m.outcome = 'created'), 25::bigint,
  'an account makes 30 invites in a minute');
select is(pg_temp.make('o'), row('rate_limit_exceeded', null, null)::relay_v1.create_invite_result, 'the 31st is refused');
select is(pg_temp.state('n30'), 'available', 'and ends no invite');
select is((pg_temp.make('p', 'phone', 'hostAAAAAAAAAAAA', 'user-2')).outcome, 'created', 'another account has its own window');
select test_clock.advance('59.999 seconds');
select is((pg_temp.make('o')).outcome, 'rate_limit_exceeded', 'the window is a minute long');
select test_clock.advance('1 ms');
select is((pg_temp.make('o')).outcome, 'created', 'and then another begins');

select is(pg_temp.release('o', 'conn-1'), 'not_reserved', 'nobody holds it');
select pg_temp.open('o', 'conn-2');
select is(pg_temp.release('o', 'conn-3'), 'not_reserved', 'another connection cannot give it back');
select is(pg_temp.release('o', 'conn-2', 'hostBBBBBBBBBBBB'), 'not_reserved', 'nor can one of another host');
select is(relay_v1.release_invite('cell-a', '00000000-0000-0000-0000-00000000000b', 'hostAAAAAAAAAAAA', pg_temp.h('o'), 'conn-2'),
  'stale_cell_incarnation', 'nor another process of the cell');
select is(array[pg_temp.release('o', 'conn-2'), pg_temp.state('o'), pg_temp.release('o', 'conn-2')],
  array['cooldown', 'cooldown', 'not_reserved'], 'S16 its holder can, once');
select is(array[pg_temp.fail('o', 'conn-3'), pg_temp.fail('o', 'conn-4'), pg_temp.fail('o', 'conn-5'), pg_temp.fail('o', 'conn-6'),
  pg_temp.fail('o', 'conn-7')],
  array['opened cooldown', 'opened cooldown', 'opened cooldown', 'opened invalidated', 'unknown_credential not_reserved'],
  'the fifth failure ends it');
select is(pg_temp.release('none', 'conn-1'), 'not_reserved', 'an invite that is not there');
select * from finish();
