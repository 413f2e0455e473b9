-- Why the flags of a cell may not be written: first match.
-- Caller: set_cell_flags, which holds the cell. Locks: none.
create or replace function relay.flags_refusal(
  p_cell relay.cell, p_flags jsonb, p_expected_generation bigint, p_now timestamptz)
returns text
language plpgsql stable
as $$
begin
  return case
    when p_cell.cell_id is null then 'cell_not_found'
    when p_cell.flags_generation <> p_expected_generation then 'cell_flags_generation_mismatch'
    when not relay.flags_are_valid(p_flags) then 'cell_flags_invalid'
    when p_flags ->> 'admitMode' = 'reserve' then case
      when p_cell.admit_mode <> 'reserve' then 'cell_not_in_reserve_mode'
      -- a new generation that keeps reserve would re-arm a cell that tripped, by accident: go through db
      when p_cell.flags ->> 'admitMode' = 'reserve' and relay.effective_mode(p_cell.cell_id, p_now) = 'db' then 'cell_tripped'
    end
  end;
end
$$;
