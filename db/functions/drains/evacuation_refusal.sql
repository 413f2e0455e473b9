-- Why hosts cannot be moved to a cell that an operator names, or null if they can.
-- Caller: evacuate_cell, supersede_target. Locks: none.
-- Outcomes: cell_not_found; cell_in_reserve_mode; target_cell_unavailable (existing-only, not live, or draining);
-- relay_connection_headroom_exhausted.
create or replace function relay.evacuation_refusal(p_target_cell text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_cell relay.cell;
  v_runtime relay.cell_runtime;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_target_cell;
  select r.* into v_runtime from relay.cell_runtime r where r.cell_id = p_target_cell;
  return case
    when v_cell.cell_id is null then 'cell_not_found'
    when v_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'
    when v_cell.admission = 'existing-only' or v_cell.drain_incarnation = v_runtime.incarnation
      or (v_runtime.ready and v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')) is not true
      then 'target_cell_unavailable'
    when relay.load(p_target_cell, p_now) >= v_cell.unit_limit then 'relay_connection_headroom_exhausted'
  end;
end
$$;
