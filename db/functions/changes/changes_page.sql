-- One page of the change log, and the cursor after it, from one statement. Ids that were skipped are gaps: their
-- transactions may still be open, so they are asked for again until the reader drops them after 60 s. A reader that is
-- interested in one cell advances past the rows of the others all the same.
-- Caller: changes_since. Locks: none.
create or replace function relay.changes_page(
  p_timeline bigint, p_max_id bigint, p_gaps bigint[], p_cell_id text, p_max_rows int)
returns jsonb
language plpgsql stable
as $$
begin
  return (
    with edge as (
      select x.head, least(x.head, p_max_id + p_max_rows) as upto
      from (select greatest(max(c.id), p_max_id) as head from relay.change c) x
    ), present as materialized (
      select c.id, lag(c.id, 1, p_max_id) over (order by c.id) as before
      from edge e
      join relay.change c on c.id > p_max_id and c.id <= e.upto
    ), missing as (
      select g.id from present p cross join lateral generate_series(p.before + 1, p.id - 1) g (id)
      where p.id > p.before + 1
      union all
      select g.id
      from edge e cross join lateral generate_series((select coalesce(max(p.id), p_max_id) + 1 from present p), e.upto) g (id)
      union all
      select g.id from unnest(p_gaps) g (id) where not exists (select from relay.change c where c.id = g.id)
    ), wanted as (
      select c.*
      from edge e
      join relay.change c on c.id > p_max_id and c.id <= e.upto
      where p_cell_id is null or c.from_cell = p_cell_id or c.to_cell = p_cell_id
      union all
      select c.* from relay.change c
      where c.id = any (p_gaps) and (p_cell_id is null or c.from_cell = p_cell_id or c.to_cell = p_cell_id)
    )
    select jsonb_build_object(
      'cursor', jsonb_build_object('timeline', p_timeline, 'max_id', e.upto,
        'gaps', (select coalesce(jsonb_agg(m.id order by m.id), '[]') from missing m)),
      'resync', null,
      'more', e.upto < e.head,
      'changes', (
        select coalesce(jsonb_agg(jsonb_build_object('id', w.id, 'kind', w.kind, 'from_cell', w.from_cell,
          'to_cell', w.to_cell, 'user_id', w.user_id, 'relay_host_id', w.relay_host_id, 'epoch', w.epoch,
          'rule', w.rule, 'detail', w.detail, 'at', floor(extract(epoch from w.at) * 1000)::bigint) order by w.id), '[]')
        from wanted w))
    from edge e);
end
$$;
