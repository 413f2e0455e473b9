-- Connections that the registered cells hold at most, those of fenced cells apart: each its pool and its listeners. A pool
-- is that of the cell's name in p_pools, else of its region, else p_pool; a number, or {"pool", "peak"}: then a cell in
-- reserve mode counts its peak alone, but for as many as may run on the database at once (the largest deadManTripSlots; all
-- of them if one has none) or are being replaced: those with most to gain count whole.
-- Caller: connection_budget. Locks: none.
create or replace function relay.cell_connections(
  p_pool int, p_pools jsonb, p_listeners int, p_rolling int, p_now timestamptz)
returns int
language plpgsql stable
as $$
begin
  return (
    with cell as (
      select c.admit_mode = 'reserve' as reserve, coalesce(p_pools -> c.cell_id, p_pools -> c.region, to_jsonb(p_pool)) as pool,
        case when relay.is_integer_within(c.flags -> 'deadManTripSlots', 0, 64)
          then (c.flags -> 'deadManTripSlots')::numeric::int end as slots
      from relay.cell c
      where not relay.is_fenced(c.cell_id, p_now)
    ), sized as (
      select k.reserve, k.slots, coalesce(k.pool ->> 'pool', k.pool #>> '{}')::int as pool, (k.pool ->> 'peak')::int as peak
      from cell k
    ), spared as (
      select s.pool - s.peak as connections, s.slots from sized s where s.reserve and s.peak < s.pool
    ), whole as (
      select case when count(*) = count(p.slots) then max(p.slots) + p_rolling end as cells from spared p
    )
    select coalesce(sum(s.pool + p_listeners), 0)
      - coalesce((select sum(p.connections) from spared p), 0)
      + coalesce((select sum(p.connections) from (
          select n.connections from spared n order by n.connections desc limit (select w.cells from whole w)) p), 0)
    from sized s)::int;
end
$$;
