-- What is still on a cell that is to be forgotten: first match. A host that was idle for 24 h does not count: it is placed
-- anew when it asks (rule 2), wherever its row points.
-- Caller: retire_cell. Locks: none.
create or replace function relay.retire_refusal(p_cell relay.cell, p_now timestamptz)
returns text
language plpgsql stable
as $$
begin
  return case
    when p_cell.cell_id is null then 'cell_not_found'
    when p_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'
    when p_cell.admission <> 'existing-only' then 'cell_admission_enabled'
    when relay.has_open_migration(p_cell.cell_id) then 'cell_has_open_migration'
    when exists (select from relay.fence_attempt t
      where t.cell_id = p_cell.cell_id and relay.attempt_state(t, p_now) in ('begun', 'started')) then 'cell_has_open_fence'
    when exists (select from relay.assignment a
      where a.cell_id = p_cell.cell_id and a.last_activity_at > p_now - relay.span_of('dormantTtlMs'))
      or exists (select from relay.lease l where l.cell_id = p_cell.cell_id and l.expires_at > p_now) then 'cell_has_hosts'
    when exists (select from relay.cell_runtime r
      where r.cell_id = p_cell.cell_id and r.heard_at > p_now - relay.span_of('heartbeatTtlMs')) then 'cell_still_heard'
  end;
end
$$;
