-- Whether this process is the one the cell's last heartbeat came from.
-- Caller: functions that a cell calls; they answer stale_cell_incarnation if not. Locks: none.
create or replace function relay.is_incarnation(p_cell_id text, p_incarnation uuid)
returns boolean
language plpgsql stable
as $$
begin
  return exists (select from relay.cell_runtime r where r.cell_id = p_cell_id and r.incarnation = p_incarnation);
end
$$;
