-- assign: homes that are gone: the pin of row 11, row 12 fenced, row 13 dead-reserve of the table in 03 (18-32, 34, 35).
select plan(76);
\ir helpers/fleet.sql

-- x: reserve, capped, 46 s silent; y: live, with room; d: db, capped, silent; u: uncapped, silent
select test_clock.freeze('2030-01-01 00:00:00+00');
insert into relay.cell (cell_id, url, region, capacity_units, registered_at)
select n, 'https://' || n, 'east', 1000, relay.now() from (values ('y'), ('u')) v (n);
insert into relay.cell (cell_id, url, region, admit_mode, capacity_units, connection_hard_cap, connection_unobserved_bound, registered_at)
select n, 'https://' || n, 'east', m, 900, 600, 60, relay.now() from (values ('x', 'reserve'), ('d', 'db')) v (n, m);
select pg_temp.live_on(30, 'y', 'x', 'u', 'd');
select pg_temp.live_on(46, 'y');
create function pg_temp.seated(host text, cell text default 'x') returns text language sql as $$
  select pg_temp.seat(host, cell), pg_temp.hold(host, cell);
  select host
$$;
-- A new host on x asks, with evidence unless a condition is to fail.
create function pg_temp.case_of(host text, by text default 'host', floor bigint default 4, dead text default 'x', age interval default '0')
returns text language sql as $$
  select pg_temp.ask(pg_temp.seated(host), by, floor => floor, dead => dead, age => age)
$$;

-- 13 dead-reserve
select pg_temp.seated('18');
select is(pg_temp.ask('18', floor => 4), 'unavailable home-unavailable unheard x (verdict wanted)', '13 no evidence yet: a verdict is wanted');
select is(pg_temp.ask('18', floor => 4, place => false), 'unavailable home-unavailable unheard x (verdict wanted)', '13 asked not to place too');
select is((select r.decided_at from relay_v1.assign('user', '18', epoch_floor => 4) r), relay.now(), '13 with the moment it is wanted for');
select is(pg_temp.ask('18', floor => 4, dead => 'x', place => false), 'would_place dead-reserve', '13 asked not to place');
select ok(pg_temp.untouched('18', 'x'), '13 nothing is written then');
select is(pg_temp.ask('18', floor => 4, dead => 'x'), 'granted dead-reserve y 5 from x', '18 moved to Y at epoch 5');
select is(pg_temp.leases('18'), 'y granted 5', '18 no lease on X, one granted on Y');
select is(pg_temp.changes('18'), 'moved x y 5 dead-reserve', '18 one event');
select is((select c.detail ->> 'forced' from relay.change c where c.relay_host_id = '18'), 'true', '18 forced');
select pg_temp.seat('19', 'x');
select is(pg_temp.ask('19', floor => 4, dead => 'x'), 'granted dead-reserve y 5 from x', '19 a row without a lease: moved');
select is(pg_temp.case_of('21', dead => null), 'unavailable home-unavailable unheard x (verdict wanted)', '21 stale, no evidence');
select ok(pg_temp.untouched('21', 'x'), '21 row and leases stay');
select is(pg_temp.case_of('22-sweep', 'sweep'), 'unavailable home-unavailable unheard', '22 the sweep moves nobody');
select is(pg_temp.case_of('22-resolve', 'resolve'), 'unavailable home-unavailable unheard', '22 nor a resolve');
select is(pg_temp.case_of('22-invite', 'invite'), 'unavailable home-unavailable unheard', '22 nor an invite');
select is(pg_temp.case_of('22-operator', 'operator'), 'unavailable home-unavailable unheard', '22 nor an operator');
select pg_temp.seated('23', 'd');
select is(pg_temp.ask('23', floor => 4, dead => 'd'), 'unavailable home-unavailable unheard', '23 in db mode: no verdict helps');
select pg_temp.seated('24'), pg_temp.migrate('24', 'y', 'x');
select is(pg_temp.ask('24', floor => 4, dead => 'x'), 'unavailable home-unavailable unheard', '24 a pin on X at epoch 4');
select ok(pg_temp.untouched('24', 'x'), '24 row and leases stay');
update relay.migration set aborted_at = relay.now() where relay_host_id = '24';
select is(pg_temp.ask('24', floor => 4, dead => 'x', place => false), 'would_place dead-reserve', '24 aborted: does not block');
update relay.migration set aborted_at = null, registered_at = relay.now(), completed_at = relay.now() where relay_host_id = '24';
select is(pg_temp.ask('24', floor => 4, dead => 'x', place => false), 'would_place dead-reserve', '24 completed: does not block');
update relay.migration set completed_at = null, pinned_at = null where relay_host_id = '24';
select is(pg_temp.ask('24', floor => 4, dead => 'x', place => false), 'would_place dead-reserve', '24 open without a pin: does not block');
update relay.migration set pinned_at = relay.now(), target_cell = 'z' where relay_host_id = '24';
select is(pg_temp.ask('24', floor => 4, dead => 'x', place => false), 'would_place dead-reserve', '24 a pin on another cell: does not block');
update relay.migration set target_cell = 'x', epoch = 3 where relay_host_id = '24';
select is(pg_temp.ask('24', floor => 4, dead => 'x'), 'granted dead-reserve y 5 from x', '24 a pin of an older epoch: does not block');
select isnt((select m.aborted_at from relay.migration m where m.relay_host_id = '24'), null, '24 and is aborted by the move');
select is(pg_temp.case_of('27', floor => null), 'unavailable home-unavailable unheard', '27 no epoch floor');
select is(pg_temp.case_of('27-zero', floor => 0), 'granted dead-reserve y 5 from x', '27 a floor of 0 is one');
-- the evidence
select is(pg_temp.case_of('of-y', dead => 'y'), 'unavailable home-unavailable unheard x (verdict wanted)', '13 evidence about another cell');
select is(pg_temp.case_of('late', age => '5001 ms'), 'unavailable home-unavailable unheard x (verdict wanted)', '13 evidence 5.001 s old');
select is(pg_temp.case_of('in-time', age => '5 s'), 'granted dead-reserve y 5 from x', '13 evidence 5 s old');
select is(pg_temp.case_of('early', age => '-1 ms'), 'unavailable home-unavailable unheard x (verdict wanted)', '13 evidence from the future');
select pg_temp.seated('withheld');
select is((select r.outcome from relay_v1.assign('user', 'withheld', epoch_floor => 4, poll_evidence => jsonb_build_object(
  'cell_id', 'x', 'dead', false, 'evaluated_at', relay.now())) r), 'unavailable', '25 the verdict is withheld');
select ok(pg_temp.untouched('withheld', 'x'), '25 no move');
select is((select r.outcome from relay_v1.assign('user', 'withheld', epoch_floor => 4, poll_evidence => jsonb_build_object(
  'cell_id', 'x', 'dead', true)) r), 'unavailable', '25 nor without the moment it was judged');
select is((select r.rule from relay_v1.assign('user', 'withheld', epoch_floor => 4, place => false, poll_evidence => jsonb_build_object(
  'cell_id', 'x', 'dead', true, 'evaluated_at', floor(extract(epoch from relay.now()) * 1000))) r), 'dead-reserve', '13 the moment as a process gets it');
-- 28
select is(pg_temp.ask(pg_temp.seated('28'), floor => 6, seen => 'x 6', dead => 'x'), 'granted dead-reserve y 7 from x', '28 the map knows a seat on X at 6: minted 7');
select is(relay.record_seat('user', '28', 'x', 6, relay.now()), false, '28 a later ledger write (X,6)');
select is(relay.record_seat('user', '28', 'x', 7, relay.now()), false, '28 and (X,7)');
select is(pg_temp.home('28') || ', ' || pg_temp.leases('28'), 'y 7, y granted 7', '28 leave (Y,7)');
-- 32
update relay.cell set admission = 'migration-only' where cell_id = 'y';
select is(pg_temp.case_of('32'), 'no_capacity dead-reserve', '32 no target: no capacity');
select ok(pg_temp.untouched('32', 'x'), '32 row unchanged, no event');
update relay.cell set admission = 'general' where cell_id = 'y';
-- 34
select pg_temp.seated('34');
create function pg_temp.roll_back() returns text language plpgsql as $$
declare
  v_answer text;
begin
  v_answer := pg_temp.ask('34', floor => 4, dead => 'x');
  raise exception using message = v_answer;
exception when raise_exception then
  return sqlerrm;
end $$;
select is(pg_temp.roll_back(), 'granted dead-reserve y 5 from x', '34 a move that is rolled back');
select ok(pg_temp.untouched('34', 'x'), '34 says nothing');
-- what is not dead
update relay.cell set admission = 'existing-only' where cell_id = 'x';
select is(pg_temp.case_of('26-draining'), 'unavailable home-unavailable draining', '26 existing-only and stale');
update relay.cell set admission = 'general' where cell_id = 'x';
select pg_temp.order_drain('x', 0);
select is(pg_temp.case_of('26-ordered'), 'unavailable home-unavailable draining', '26 its process was told to drain');
select pg_temp.cancel_drain('x');
select pg_temp.beat('x', ready => false);
select is(pg_temp.case_of('26-not-ready'), 'unavailable home-unavailable not_ready', '26 not ready, and fresh');
select pg_temp.beat('x');
select is(pg_temp.case_of('20'), 'granted reserve-pin x 4', '20 its heartbeat is fresh: kept');
select ok(pg_temp.untouched('20', 'x'), '20 nothing written');
select pg_temp.seat('booting', 'gone');
select is(pg_temp.ask('booting', floor => 4, dead => 'gone'), 'unavailable home-unavailable booting', '13 a cell that is not registered');
insert into relay.cell_runtime (cell_id, incarnation, started_at, ready, heard_at, enforced_units, inclusion_watermark)
values ('gone', gen_random_uuid(), relay.now(), true, relay.now(), 0, 1);
select is(pg_temp.ask('booting'), 'unavailable home-unavailable booting', '14 whoever was heard under its name');
-- 35
select is(pg_temp.ask('18', floor => 5), 'granted sticky y 5', '35 X heartbeats again: the host stays on Y');
select is(relay_v1.release_lease('user', '18', 'x', lpad('1', 32, '0')::uuid, 4, 1), 'not_held', '35 a late release of X');
select is(pg_temp.leases('18'), 'y granted 5', '35 frees nothing');
-- 22b
select test_clock.advance('60 s');
select pg_temp.beat('y');
select is(pg_temp.case_of('22b'), 'unavailable home-unavailable unheard', '22b the database was away for 60 s');
select pg_temp.seat(h, 'y', active => '25 hours') from unnest(array['22b-idle', '22b-later']) h;
select is(pg_temp.ask('22b-idle', place => false), 'granted sticky y 4', '2 nor is an idle host called dormant');
select pg_temp.live_on(59, 'y');
select is(pg_temp.ask('22b', floor => 4, dead => 'x'), 'unavailable home-unavailable unheard', '22b nobody is judged for 60 s');
select pg_temp.live_on(1, 'y');
select is(pg_temp.ask('22b', floor => 4, dead => 'x'), 'granted dead-reserve y 5 from x', '22b and then it is');
select is(pg_temp.ask('22b-later', place => false), 'would_place dormant', '2 so is it');

-- 11 dead-uncapped
select is(pg_temp.ask(pg_temp.seated('29', 'u')), 'granted dead-uncapped y 1004 from u', '29 uncapped: moves without evidence');
update relay.cell set admit_mode = 'reserve' where cell_id = 'u';
select is(pg_temp.ask(pg_temp.seated('29-reserve', 'u'), floor => 4), 'granted dead-uncapped y 5 from u', '29 in reserve mode too');
select pg_temp.seated('pinned', 'u'), pg_temp.migrate('pinned', 'y', 'u');
select is(pg_temp.ask('pinned', floor => 4), 'unavailable home-unavailable unheard', '11 a pinned host needs a fence');
update relay.migration set pinned_at = null where relay_host_id = 'pinned';
select is(pg_temp.ask('pinned', floor => 4), 'granted dead-uncapped y 5 from u', '11 an open migration without a pin does not hold it');

-- 12 fenced
update relay.cell set admission = 'existing-only' where cell_id = 'd';
select pg_temp.seated('fenced', 'd'), pg_temp.seated('fenced-resolve', 'd'), pg_temp.seated('fenced-invite', 'd'),
  pg_temp.seated('fenced-sweep', 'd'), pg_temp.seated('fenced-operator', 'd'), pg_temp.seated('fenced-pinned', 'd');
select pg_temp.migrate('fenced-pinned', 'y', 'd');
select pg_temp.fence('d', 2);
select is(pg_temp.ask('fenced', floor => 4), 'unavailable home-unavailable draining', '12 a fence of another process does not count (F6)');
delete from relay.fence;
select pg_temp.fence('d');
select is(pg_temp.ask('fenced', floor => 4, place => false), 'would_place fenced', '12 asked not to place');
select is(pg_temp.ask('fenced', floor => 4), 'granted fenced y 5 from d', '30 a committed fence: moves without evidence (F1)');
select is(pg_temp.leases('fenced'), 'y granted 5', '12 at once');
select is(pg_temp.ask('fenced-operator', 'operator', floor => 4), 'unavailable home-unavailable draining', '12 not for an operator');
select is(pg_temp.ask('fenced-resolve', 'resolve', floor => 4), 'granted fenced y 5 from d', '12 for a resolve');
select is(pg_temp.ask('fenced-invite', 'invite', floor => 4), 'granted fenced y 5 from d', '12 for an invite');
select is(pg_temp.ask('fenced-sweep', 'sweep'), 'granted fenced y 1004 from d', '12 for a sweep');
select is(pg_temp.ask('fenced-pinned', floor => 4), 'granted fenced y 5 from d', '12 a pinned host too');
select isnt((select m.aborted_at from relay.migration m where m.relay_host_id = 'fenced-pinned'), null, '12 whose migration is aborted');
select is(relay_v1.explain_assign('user', 'fenced-operator') #>> '{inputs,fence,cell_id}', 'd', '12 explained: the fence');
select is(relay_v1.explain_assign('user', 'fenced-operator') ->> 'rule', 'fenced', '12 and the rule');
select pg_temp.seated('explained', 'y'), pg_temp.migrate('explained', 'u', 'y');
select is(relay_v1.explain_assign('user', 'explained') #>> '{inputs,migration,source_cell}', 'u', 'explained: the open migration');
update relay.cell set admission = 'general' where cell_id = 'd';
select is(pg_temp.ask('fenced-operator', floor => 4), 'unavailable home-unavailable unheard', '12 not while admission is on');
select * from finish();
