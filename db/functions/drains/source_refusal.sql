-- Why a cell cannot be evacuated, or null if it can. Caller: evacuate_cell. Locks: none.
-- Outcomes: cell_not_found; cell_in_reserve_mode; drain_attempt_admission_enabled (it is general, and would fill again);
-- source_cell_unavailable (not live: its hosts leave by a fence).
create or replace function relay.source_refusal(p_source_cell text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_cell relay.cell;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_source_cell;
  return case
    when v_cell.cell_id is null then 'cell_not_found'
    when v_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'
    when v_cell.admission = 'general' then 'drain_attempt_admission_enabled'
    when not exists (select from relay.cell_runtime r
      where r.cell_id = p_source_cell and r.ready and r.heard_at > p_now - relay.span_of('heartbeatTtlMs'))
      then 'source_cell_unavailable'
  end;
end
$$;
