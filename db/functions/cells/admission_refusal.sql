-- Why the admission of a cell may not be changed, whatever to: first match.
-- Caller: set_admission, isolate_for_roll, restore_after_roll. Locks: none.
-- Outcomes: cell_not_found, admission_selector_generation_mismatch (another operator was here meanwhile), null.
create or replace function relay.admission_refusal(p_cell relay.cell, p_expected_generation bigint)
returns text
language plpgsql immutable
as $$
begin
  return case
    when p_cell.cell_id is null then 'cell_not_found'
    when p_cell.admission_generation <> p_expected_generation then 'admission_selector_generation_mismatch'
  end;
end
$$;
