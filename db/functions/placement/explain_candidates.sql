-- Every cell with its load, its limit and why it would not be the target of a decision, null if it could be.
-- Caller: explain_assign. Locks: none. Reasons: home, those of target_rejection, full, region (a cell of the preferred
-- region has room).
create or replace function relay.explain_candidates(p_decision relay.decision, p_now timestamptz)
returns jsonb
language plpgsql stable
as $$
begin
  return (
    with looked_at as (
      select c.cell_id, c.region, c.unit_limit, n.load,
        case when c.cell_id = p_decision.excluded then 'home' else relay.target_rejection(c, r, p_now) end as rejected
      from relay.cell c
      left join relay.cell_runtime r on r.cell_id = c.cell_id
      left join lateral relay.cell_load(c.cell_id, p_now) n on true
    ), counted as (
      select l.cell_id, l.region, l.unit_limit, l.load,
        coalesce(l.rejected, case when l.load >= l.unit_limit then 'full' end) as rejected
      from looked_at l
    ), ranked as (
      select k.*, bool_or(k.rejected is null and k.region = p_decision.target_region) over () as region_has_room
      from counted k
    )
    select coalesce(jsonb_agg(jsonb_build_object('cell_id', k.cell_id, 'load', k.load, 'limit', k.unit_limit,
      'rejected', coalesce(k.rejected, case when k.region_has_room and k.region <> p_decision.target_region then 'region' end))
      order by k.cell_id), '[]')
    from ranked k);
end
$$;
