-- Why the recorded mode of a cell may not change: first match. The record and what the process does must never disagree
-- in the direction that loses hosts: while it says reserve nobody is moved off the cell for a missing lease.
-- Caller: set_admit_mode, which holds the cell. Locks: none.
create or replace function relay.admit_mode_refusal(p_cell relay.cell, p_mode text, p_now timestamptz)
returns text
language plpgsql stable
as $$
begin
  return case
    when p_cell.cell_id is null then 'cell_not_found'
    when p_mode = 'reserve' and relay.has_open_migration(p_cell.cell_id) then 'cell_has_open_migration'
    when p_mode = 'reserve' and relay.has_open_drain(p_cell.cell_id) then 'cell_has_open_drain'
    -- back to db: the flags first, then the process gives each host a lease, then the record
    when p_mode = 'db' and p_cell.flags ->> 'admitMode' = 'reserve' then 'cell_flags_admit_reserve'
    when p_mode = 'db' and p_cell.admit_mode = 'reserve' and relay.effective_mode(p_cell.cell_id, p_now) = 'reserve'
      then 'cell_admits_reserve'
  end;
end
$$;
