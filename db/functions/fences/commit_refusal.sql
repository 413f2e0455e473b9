-- Why a fence cannot be committed now, or null if it can. Caller: fence_commit, which holds the cell and its runtime row.
-- Locks: none. Outcomes: those of attempt_refusal; cell_fence_attempt_not_started; cell_fence_admission_enabled;
-- cell_fence_runtime_mismatch; cell_fence_runtime_not_stale (heard less than 45 s ago).
create or replace function relay.commit_refusal(p_attempt relay.fence_attempt, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_state constant text := case when p_attempt.attempt_id is not null then relay.attempt_state(p_attempt, p_now) end;
  v_cell relay.cell;
  v_runtime relay.cell_runtime;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_attempt.cell_id;
  select r.* into v_runtime from relay.cell_runtime r where r.cell_id = p_attempt.cell_id;
  return coalesce(relay.attempt_refusal(v_state), case
    when v_state = 'begun' then 'cell_fence_attempt_not_started'
    when v_cell.cell_id is null then 'cell_not_found'
    when v_cell.admission <> 'existing-only' then 'cell_fence_admission_enabled'
    when v_runtime.incarnation <> p_attempt.incarnation then 'cell_fence_runtime_mismatch'
    when v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs') then 'cell_fence_runtime_not_stale'
  end);
end
$$;
