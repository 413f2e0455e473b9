-- Locks a cell for an operator's change: its row, then its latch, exclusive, as a statement by hand takes them. A grant
-- that has read the old row is committed first, and one that waits reads the new one.
-- Caller: operator functions. Locks: the row of the cell, then its latch. Outcome: the row, all null if there is none.
create or replace function relay.lock_cell(p_cell_id text)
returns relay.cell
language plpgsql
as $$
declare
  v_cell relay.cell;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_cell_id for update;
  if found then
    perform pg_advisory_xact_lock(relay.latch_space(), v_cell.latch);
  end if;
  return v_cell;
end
$$;
