-- set_admit_mode, set_cell_flags, record_effective_mode, claim_trip_slot, view trip_slots (03, trip slots; 61–84).
\ir helpers/fleet.sql
select plan(90);

create function pg_temp.inc(n int default 1) returns uuid language sql as $$ select lpad(n::text, 32, '0')::uuid $$;
create function pg_temp.mode_of(cell text) returns text language sql as $$
  select concat_ws(' ', e.mode, extract(epoch from relay.now() - e.updated_at)::int) from relay.cell_effective_mode e where e.cell_id = cell
$$;
create function pg_temp.says(cell text, mode text, process int default 1) returns text language sql as $$
  select relay_v1.record_effective_mode(cell, pg_temp.inc(process), mode)
$$;
create function pg_temp.claim(cell text, slots int, process int default 1) returns text language sql as $$
  select relay_v1.claim_trip_slot(cell, pg_temp.inc(process), slots)
$$;
create function pg_temp.changes_of(wanted text) returns text language sql as $$
  select string_agg(concat_ws(' ', c.to_cell, c.detail ->> 'from', c.detail ->> 'to', c.detail ->> 'generation'), ', ' order by c.id)
  from relay.change c where c.kind = wanted
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');
select relay_v1.register_cell(n, 'https://' || n, 'here', 100) from unnest(array['a', 'b', 'c', 'd']) n;
select pg_temp.live_on(75, 'a', 'b', 'c', 'd');

-- set_admit_mode
select is(relay_v1.set_admit_mode('nowhere', 'db'), 'cell_not_found', 'no such cell');
select throws_ok($$ select relay_v1.set_admit_mode('a', 'both') $$, 'RL001', null, 'no such mode');
select is(relay_v1.set_admit_mode('a', 'db'), 'ok', 'the same again is fine');
select is(pg_temp.changes_of('mode'), null, 'and no change');
select pg_temp.migrate('h', 'a', 'b');
select is(relay_v1.set_admit_mode('a', 'reserve'), 'cell_has_open_migration', 'not while a host is leaving it');
select is(relay_v1.set_admit_mode('b', 'reserve'), 'cell_has_open_migration', 'nor while one is coming');
delete from relay.migration;
select relay_v1.set_admission('a', 'existing-only');
select relay_v1.start_drain('a');
select is(relay_v1.set_admit_mode('a', 'reserve'), 'cell_has_open_drain', 'nor while it drains');
select relay_v1.cancel_drain('a');
select relay_v1.set_admission('a', 'general');
select is(relay_v1.set_admit_mode('a', 'reserve'), 'ok', 'recorded');
select is(pg_temp.changes_of('mode'), 'a db reserve', 'and said');

-- set_cell_flags
select throws_ok($$ select relay_v1.set_cell_flags('a', '{}', null) $$, 'RL001', null, 'the generation is needed');
select is(relay_v1.set_cell_flags('nowhere', '{}', 0), 'cell_not_found', 'no such cell');
select is(relay_v1.set_cell_flags('a', '{}', 1), 'cell_flags_generation_mismatch', 'another generation');
select is(relay_v1.set_cell_flags('b', '{"admitMode": "reserve"}', 0), 'cell_not_in_reserve_mode', 'reserve is recorded first');
select is(relay_v1.set_cell_flags('a', '{"admitMode": "reserve", "deadManTripSlots": 2}', 0), 'ok', 'written');
select is((select array[c.flags_generation::text, c.flags ->> 'deadManTripSlots'] from relay.cell c where c.cell_id = 'a'), array['1', '2'], 'as the next generation');
select is(pg_temp.changes_of('flags'), 'a 1', 'and rung');
select is((select o.flags_generation from relay_v1.cell_orders('a', pg_temp.inc()) o), 1::bigint, 'the cell reads it');
select is(relay_v1.set_cell_flags('a', '{}', 0), 'cell_flags_generation_mismatch', 'the later of two writers is refused');
select is(relay_v1.set_cell_flags('b', '{"newerThanUs": [1]}', 0), 'ok', 'an unknown key is for a newer cell');
select is(relay.flags_are_valid(f), true, '84: accepted: ' || f::text) from unnest(array['{"deadManTripSlots": 0}', '{"deadManTripSlots": 64}', '{"deadManTripSlots": 1.0}',
  '{"ticketCheck": "shadow"}', '{"intakePerSec": 0.5}', '{"readTimeoutMarginMs": 1000, "rejectionFence": false}']::jsonb[]) f;
select is(relay.flags_are_valid(f), false, '84: refused: ' || f::text) from unnest(array['{"deadManTripSlots": -1}', '{"deadManTripSlots": 65}', '{"deadManTripSlots": 1.5}',
  '{"deadManTripSlots": "2"}', '{"deadManTripSlots": null}', '{"ticketCheck": "on"}', '{"admitMode": true}', '{"intakePerSec": 0}', '{"intakePerSec": "5"}',
  '{"reregisterInFlight": 17}', '{"readinessLocal": 1}', '[]', '2']::jsonb[]) f;
select is(relay_v1.set_cell_flags('b', '{"deadManTripSlots": 65}', 1), 'cell_flags_invalid', 'one bad value voids the set');

-- back to db
select is(pg_temp.says('a', 'reserve'), 'ok', 'the process says reserve');
select is(relay_v1.set_admit_mode('a', 'db'), 'cell_flags_admit_reserve', 'the flag goes first');
select is(relay_v1.set_cell_flags('a', '{"admitMode": "db"}', 1), 'ok', 'it went');
select is(relay_v1.set_admit_mode('a', 'db'), 'cell_admits_reserve', 'then the process');
select pg_temp.says('a', 'db');
select is(relay_v1.set_admit_mode('a', 'db'), 'ok', 'then the record');
select relay_v1.set_admit_mode(n, 'reserve') from unnest(array['a', 'b', 'c', 'd']) n;
select pg_temp.says(n, 'reserve') from unnest(array['a', 'b', 'c', 'd']) n;
select test_clock.advance('45 s');
select is(relay_v1.set_admit_mode('d', 'db'), 'ok', 'a process that is not heard any more holds nothing up');
select relay_v1.set_admit_mode('d', 'reserve');
select pg_temp.live_on(75, 'a', 'b', 'c', 'd');

-- record_effective_mode
select throws_ok($$ select pg_temp.says('a', 'both') $$, 'RL001', null, 'no such effective mode');
select is(pg_temp.says('a', 'db', 2), 'stale_cell_incarnation', 'a process that was not heard last says nothing (V2)');
select is(pg_temp.mode_of('a'), 'reserve 120', 'and changes nothing');
select is(pg_temp.says('a', 'reserve'), 'ok', '68: refreshed');
select is(pg_temp.mode_of('a'), 'reserve 0', 'is a new time');
select is(pg_temp.changes_of('effective_mode') like '%reserve reserve%', false, 'and no change to tell');

-- claim_trip_slot
select throws_ok($$ select pg_temp.claim('a', 65) $$, 'RL001', null, '0 to 64 slots');
select is(pg_temp.claim('a', 2, 2), 'stale_cell_incarnation', 'an older process claims nothing');
select is(pg_temp.claim('a', 0), 'full', '63: no slots');
select is(pg_temp.mode_of('a'), 'reserve 0', 'leaves the row alone');
select is(pg_temp.claim('a', 1), 'granted', 'the first');
select is(pg_temp.mode_of('a'), 'db 0', 'writes it');
select is(pg_temp.claim('b', 1), 'full', 'the second waits');
select is(pg_temp.claim('a', 1), 'granted', '77: its own row does not count against it');
select is(pg_temp.claim('b', 2), 'granted', '79: with another flag it is one of two');
select is(pg_temp.claim('c', 2), 'full', 'the third waits');
select pg_temp.says('a', 'reserve');
select is(pg_temp.claim('c', 2), 'granted', '75: a holder that writes reserve frees one');
select relay_v1.set_cell_flags('c', '{"admitMode": "reserve"}', 0);
select is(relay_v1.set_cell_flags('c', '{"admitMode": "reserve", "intakePerSec": 3}', 1), 'cell_tripped', 'a write that keeps reserve would re-arm a tripped cell by accident');
select is(relay_v1.set_cell_flags('c', '{"admitMode": "db"}', 1), 'ok', 'through db');
select is(relay_v1.set_cell_flags('c', '{"admitMode": "reserve"}', 2), 'ok', 'it is re-armed on purpose');
select relay_v1.set_cell_flags('d', '{"deadManTripSlots": 2.0}', 0);
select is((select t.slots from relay_v1.trip_slots t where t.cell_id = 'd'), 2, '84: a whole number written as 2.0 is one to the view, too');
select relay_v1.set_admit_mode('b', 'db');
select is(pg_temp.claim('a', 2), 'granted', '76: a deliberate db flip does not count');
select is((select string_agg(t.cell_id || ' ' || t.holds_slot, ', ' order by t.cell_id) from relay_v1.trip_slots t), 'a true, b false, c true, d false', 'as the view says');
select test_clock.advance('46 s');
select pg_temp.beat('d');
select is(pg_temp.claim('d', 2), 'busy', 'nobody is judged by a silence that everybody shared');
select pg_temp.live_on(60, 'd');
select is(pg_temp.claim('d', 2), 'full', '78: holders count whose heartbeat is stale');
select pg_temp.beat('c', process => 2);
select is(pg_temp.claim('d', 2), 'full', '83: and whose process was replaced, until the new one says what it does');
select pg_temp.live_on(493, 'd');
select is(pg_temp.claim('d', 2), 'full', 'incident 30: silent for a second less than 10 min it keeps its slot');
select test_clock.advance('1 s');
select is(pg_temp.claim('d', 2), 'granted', 'incident 30: silent for 10 min it has none');

-- view modes
create function pg_temp.shown(cell text) returns text language sql as $$
  select concat_ws(' ', m.admit_mode, m.flag_mode, m.flags_generation, m.effective_mode, extract(epoch from m.effective_age)::int,
    'unleased ' || m.unleased, 'seated ' || m.seated, m.state, m.polled, extract(epoch from m.director_age)::int)
  from relay_v1.modes m where m.cell_id = cell
$$;
select relay_v1.register_cell('e', 'https://e', 'here', 100);
select is(pg_temp.shown('e'), 'db db 0 seated 0 never heard f', 'a cell that was never heard');
select pg_temp.beat('e', counts => '{"director_contact_ms": 2000}');
select is(pg_temp.shown('e'), 'db db 0 seated 0 live t 2', 'one that a director polls');
select test_clock.advance('42.999 s');
select is(relay.is_polled('e', relay.now()), true, 'so it counts for 45 s');
select test_clock.advance('1 ms');
select is(relay.is_polled('e', relay.now()), false, 'and then no more');
select pg_temp.beat('e');
select is(pg_temp.shown('e'), 'db db 0 seated 0 live f', 'a process that no director has polled');
select lives_ok($$ select relay_v1.set_admit_mode('e', 'reserve') $$, 'is recorded as reserve all the same, with a warning');
select relay_v1.set_cell_flags('e', '{"admitMode": "reserve"}', 0);
select pg_temp.says('e', 'reserve');
select is(pg_temp.shown('e'), 'reserve reserve 1 reserve 0 seated 0 live f', 'in reserve mode');
select relay_v1.set_cell_flags('e', '{"admitMode": "db"}', 1);
select throws_ok($$ select relay_v1.record_effective_mode('e', pg_temp.inc(), 'reserve', -1) $$, 'RL001', null, 'a count is not below zero');
select is(relay_v1.record_effective_mode('e', pg_temp.inc(), 'reserve', 3), 'ok', 'on its way back it counts who has no lease yet');
select is(pg_temp.shown('e'), 'reserve db 2 reserve 0 unleased 3 seated 0 live f', 'as the view shows');
select is((select count(*) from relay.change c where c.kind = 'effective_mode' and c.to_cell = 'e'), 1::bigint, 'which is no change to tell');
select pg_temp.seat('leased', 'e'), pg_temp.hold('leased', 'e');
select pg_temp.seat('older', 'e'), pg_temp.hold('older', 'e');
update relay.lease l set incarnation = pg_temp.inc(9) where l.relay_host_id = 'older';
select pg_temp.says('e', 'db');
select is(pg_temp.shown('e'), 'reserve db 2 db 0 seated 1 live f', 'until all have one of this process');
select pg_temp.beat('e', process => 2);
select is(pg_temp.shown('e'), 'reserve db 2 seated 0 live f', 'what an older process said is not shown');
select is(relay_v1.set_admit_mode('e', 'db'), 'ok', 'and holds nothing up');
select test_clock.advance('45 s');
select is(pg_temp.shown('e'), 'db db 2 seated 0 unheard f', 'a silent one');
select pg_temp.beat('e', ready => false, process => 2);
select is(pg_temp.shown('e'), 'db db 2 seated 0 not ready f', 'one that is not ready');

set session authorization relay_director;
select set_config('test.answers', concat_ws(' ', relay_v1.set_admit_mode('a', 'db'), relay_v1.set_cell_flags('a', '{}', 2)), true);
reset session authorization;
select is(current_setting('test.answers'), 'forbidden forbidden', 'who is no operator is answered so (F10)');

select * from finish();
