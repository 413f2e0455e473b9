-- Those of the silent cells that a director's polls would judge dead, if its feed had every cell that is heard now (03, the
-- director's verdict): withheld with too small a sample, too much of the fleet or too much of a region failing.
-- Caller: simulate_outage. Locks: none.
create or replace function relay.cells_judged_dead(p_dead text[], p_now timestamptz)
returns text[]
language plpgsql stable
as $$
begin
  return array(
    with polled as (
      select c.cell_id, c.region, c.cell_id = any (p_dead) as failing
      from relay.cell c
      join relay.cell_runtime r on r.cell_id = c.cell_id
      where r.heard_at > p_now - relay.span_of('heartbeatTtlMs')
    ), counted as (
      select p.*, count(*) over () as cells, count(*) filter (where p.failing) over () as cells_failing,
        count(*) over here as in_region, count(*) filter (where p.failing) over here as failing_in_region
      from polled p
      window here as (partition by p.region)
    )
    select k.cell_id
    from counted k
    where k.failing and k.cells >= relay.limit_of('verdictMinFeedCells') and k.cells_failing * 3 <= k.cells
      and k.failing_in_region * 2 < k.in_region);
end
$$;
