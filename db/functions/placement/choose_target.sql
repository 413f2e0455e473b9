-- A cell for a host: two candidates at random, the one with the lower load ratio wins; all are counted only if both are
-- full (counting 30 a move costs 3–5×). The preferred region if it has any candidate, else any. All null: none.
-- Caller: apply_assign. Locks: none; attempt_assign looks again under the latch.
create or replace function relay.choose_target(p_region text, p_excluded text[], p_now timestamptz)
returns relay.target
language plpgsql stable
as $$
declare
  v_target relay.target;
  v_region text;
  v_sample int;
begin
  foreach v_region in array case when p_region is null then array[null] else array[p_region, null] end loop
    foreach v_sample in array array[2, null]::int[] loop
      select s.cell_id, s.latch, s.url, s.region, s.unit_limit - n.load
      into v_target
      from (
        select c.cell_id, c.latch, c.url, c.region, c.unit_limit
        from relay.cell c
        join relay.cell_runtime r on r.cell_id = c.cell_id
        where relay.target_rejection(c, r, p_now) is null
          and (v_region is null or c.region = v_region)
          and c.cell_id <> all (p_excluded)
        order by random()
        limit v_sample
      ) s
      -- `offset 0`: or else the load is counted again for the filter, the order and the answer
      cross join lateral (select l.load from relay.cell_load(s.cell_id, p_now) l offset 0) n
      where n.load < s.unit_limit
      order by n.load::float8 / s.unit_limit, s.latch
      limit 1;
      if found then
        return v_target;
      end if;
    end loop;
  end loop;
  return null;
end
$$;
