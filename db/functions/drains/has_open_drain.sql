-- Whether the running process of a cell is told to drain. Caller: set_admit_mode, evacuate_cell. Locks: none.
create or replace function relay.has_open_drain(p_cell_id text)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.cell c
    join relay.cell_runtime r on r.cell_id = c.cell_id and r.incarnation = c.drain_incarnation
    where c.cell_id = p_cell_id);
end
$$;
