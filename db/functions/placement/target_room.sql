-- How many units a cell has free for a host that is to be placed there, null if it is no target (any more).
-- Caller: attempt_assign, which holds the latch of the cell. Locks: none.
create or replace function relay.target_room(p_cell_id text, p_now timestamptz)
returns int
language plpgsql stable
as $$
begin
  return (
    select c.unit_limit - n.load
    from relay.cell c
    join relay.cell_runtime r on r.cell_id = c.cell_id
    cross join lateral relay.cell_load(c.cell_id, p_now) n
    where c.cell_id = p_cell_id and relay.target_rejection(c, r, p_now) is null);
end
$$;
