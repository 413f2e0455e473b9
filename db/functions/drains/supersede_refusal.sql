-- Why the migrations of a source cannot be moved from a dead target to another, or null if they can.
-- Caller: supersede_target. Locks: none. Outcomes: see there.
create or replace function relay.supersede_refusal(
  p_source_cell text, p_dead_target text, p_replacement text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_admission text;
begin
  select c.admission into v_admission from relay.cell c where c.cell_id = p_dead_target;
  return case
    when not found then 'cell_not_found'
    when p_replacement in (p_source_cell, p_dead_target) then 'target_matches_source'
    when v_admission <> 'existing-only' then 'cell_fence_admission_enabled'
    when not relay.is_fenced(p_dead_target, p_now) then 'cell_fence_attestation_missing'
    else relay.evacuation_refusal(p_replacement, p_now)
  end;
end
$$;
