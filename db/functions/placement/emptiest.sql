-- Which of the cells with room has the lowest load ratio, in the region if it has any with room, else in all; null if none.
-- Caller: simulate_outage. Locks: none.
create or replace function relay.emptiest(p_region text, p_regions text[], p_loads int[], p_limits int[])
returns int
language plpgsql immutable
as $$
begin
  return (
    select x.at
    from unnest(p_regions, p_loads, p_limits) with ordinality x (region, load, unit_limit, at)
    where x.load < x.unit_limit
    order by coalesce(x.region = p_region, false) desc, x.load::float8 / x.unit_limit, x.at
    limit 1);
end
$$;
