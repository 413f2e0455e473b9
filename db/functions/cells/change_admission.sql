-- Writes what a cell may take, with the next generation of its admission, and says so.
-- Caller: set_admission, isolate_for_roll, restore_after_roll, which hold the cell (lock_cell). Locks: none of its own.
create or replace function relay.change_admission(
  p_cell relay.cell, p_admission text, p_roll_isolated_at timestamptz, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  update relay.cell c
  set admission = p_admission, roll_isolated_at = p_roll_isolated_at, admission_generation = c.admission_generation + 1
  where c.cell_id = p_cell.cell_id;
  perform relay.ring('admission', p_cell.cell_id, jsonb_build_object('from', p_cell.admission, 'to', p_admission,
    'generation', p_cell.admission_generation + 1,
    'roll_isolated_at', (extract(epoch from p_roll_isolated_at) * 1000)::bigint), p_now);
end
$$;
