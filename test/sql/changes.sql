-- The change log: cursor, gaps, resync, pruning (02, change log and doorbell; P9).
select plan(34);

create function pg_temp.add(id bigint, cell text default 'a', other text default null) returns void language sql as $$
  insert into relay.change (id, kind, from_cell, to_cell, at) overriding system value values (id, 'granted', other, cell, relay.now())
$$;
create function pg_temp.cursor(max bigint, variadic gaps bigint[] default '{}') returns jsonb language sql as $$
  select jsonb_build_object('timeline', relay.timeline(), 'max_id', max, 'gaps', to_jsonb(gaps))
$$;
create function pg_temp.since(cursor jsonb, cell text default null, rows int default 1000) returns text language sql as $$
  select concat_ws(' ', (select string_agg(c ->> 'id', ',') from jsonb_array_elements(p -> 'changes') c), '>', p #>> '{cursor,max_id}',
    nullif(p #>> '{cursor,gaps}', '[]'), p ->> 'resync', case when (p ->> 'more')::boolean then 'more' end)
  from relay_v1.changes_since(cursor, cell, rows) p
$$;

select test_clock.freeze('2030-01-01 00:00:00+00');

-- from the beginning
select is(pg_temp.since(null), '> 0 start', 'an empty log');
select is(pg_temp.since(pg_temp.cursor(0)), '> 0', 'read from its head');
select pg_temp.add(n) from generate_series(101, 103) n;
select is(pg_temp.since(pg_temp.cursor(100)), '101,102,103 > 103', 'the rows after the cursor, and the next cursor');
select is(pg_temp.since(pg_temp.cursor(103)), '> 103', 'then none');
select is(relay_v1.changes_since(pg_temp.cursor(102)) -> 'changes' -> 0,
  jsonb_build_object('id', 103, 'kind', 'granted', 'from_cell', null, 'to_cell', 'a', 'user_id', null, 'relay_host_id', null, 'epoch', null,
    'rule', null, 'detail', null, 'at', extract(epoch from relay.now())::bigint * 1000), 'a row');

-- gaps: ids are taken before commit
select pg_temp.add(106), pg_temp.add(108);
select is(pg_temp.since(pg_temp.cursor(103)), '106,108 > 108 [104, 105, 107]', 'skipped ids are gaps');
select is(pg_temp.since(pg_temp.cursor(108, 104, 105, 107)), '> 108 [104, 105, 107]', 'which stay');
select pg_temp.add(105);
select is(pg_temp.since(pg_temp.cursor(108, 104, 105, 107)), '105 > 108 [104, 107]', 'until their transactions commit');
select pg_temp.add(109);
select is(pg_temp.since(pg_temp.cursor(108, 104, 107)), '109 > 109 [104, 107]', 'together with what is new');
select is(pg_temp.since(pg_temp.cursor(108)), '109 > 109', 'a gap that the reader dropped is not asked for again');

-- pages
select pg_temp.add(n) from generate_series(110, 119) n;
select is(pg_temp.since(pg_temp.cursor(109), null, 4), '110,111,112,113 > 113 more', 'a page');
select is(pg_temp.since(pg_temp.cursor(117), null, 4), '118,119 > 119', 'the last one');
select pg_temp.add(130);
select is(pg_temp.since(pg_temp.cursor(119), null, 4), '> 123 [120, 121, 122, 123] more', 'a page of nothing but gaps');
select is(pg_temp.since(pg_temp.cursor(119), null, 0), '> 120 [120] more', 'a page has a row at least');

-- a cell reads what concerns it, and advances past the rest
select pg_temp.add(131, 'b'), pg_temp.add(132, 'c', 'b'), pg_temp.add(134, 'c'), pg_temp.add(135, null);
select is(pg_temp.since(pg_temp.cursor(130), 'b'), '131,132 > 135 [133]', 'filtered: to it and from it, with the gaps of all');
select is(pg_temp.since(pg_temp.cursor(132), 'b'), '> 135 [133]', 'filtered: past the others');
select pg_temp.add(133, 'c');
select is(pg_temp.since(pg_temp.cursor(135, 133), 'b'), '> 135', 'filtered: a gap that turns out to be another''s is closed');

-- resync
select pg_temp.add(n) from generate_series(1, 100) n;
select is(pg_temp.since(null), '> 135 [104, 107, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129] start', 'a start: the head, and the ids that may still come');
select is(pg_temp.since(null, null, 10), '> 135 [104, 107, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129] start', 'however small the page: their transactions may be open still');
select is(pg_temp.since(pg_temp.cursor(136)), '> 135 [104, 107, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129] ahead', 'beyond the head: commits were lost (V1)');
select is(pg_temp.since(pg_temp.cursor(135) || '{"timeline": 99}', null, 1), '> 135 [104, 107, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129] timeline', 'another timeline (V1)');
select is(relay_v1.changes_since(pg_temp.cursor(136)) -> 'changes', '[]', 'with no rows: the reader reads its state');

-- pruning
select is(relay_v1.sweep_changes(), 0, 'nothing is old');
select test_clock.advance('15 minutes');
select is(relay_v1.sweep_changes(), 0, '15 min is not older than 15 min');
select pg_temp.add(140);
select test_clock.advance('1 ms');
select is(relay_v1.sweep_changes(50), 50, 'a sweep is limited');
select is((select s.changes_pruned_to from relay.setting s), 50::bigint, 'and writes its horizon');
select is(pg_temp.since(pg_temp.cursor(49), null, 1), '> 140 [104, 107, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 136, 137, 138, 139] pruned', 'a cursor below it resyncs');
select is(pg_temp.since(pg_temp.cursor(50), null, 1), '51 > 51 more', 'one at it goes on');
select is(relay_v1.sweep_changes(), 73, 'the rest');
select is(pg_temp.since(pg_temp.cursor(135), null, 10), '140 > 140 [136, 137, 138, 139]', 'what is young stays');
select test_clock.advance('16 minutes');
select is(relay_v1.sweep_changes(), 1, 'even the last row goes');
select is(pg_temp.since(pg_temp.cursor(140)), '> 140', 'and the head stays where it was');
select is(pg_temp.since(null), '> 140 start', 'for a start, too');
select pg_temp.add(138);
select is(pg_temp.since(pg_temp.cursor(140)), '> 140', 'a row that commits later below it takes no cursor back');
select * from finish();
