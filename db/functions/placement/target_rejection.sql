-- Why a cell cannot be the target of a host, or null if it can, its load apart (03, target).
-- Inlined into the queries that use it. Caller: choose_target, target_room, explain_assign, regions. Locks: none.
-- Outcomes: admission, unheard, not_ready, draining, reserve (it takes hosts, but from bookings only).
create or replace function relay.target_rejection(p_cell relay.cell, p_runtime relay.cell_runtime, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_cell.admission <> 'general' then 'admission'
    when (p_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')) is not true then 'unheard'
    when not p_runtime.ready then 'not_ready'
    when p_cell.drain_incarnation = p_runtime.incarnation then 'draining'
    when p_cell.admit_mode = 'reserve' and not relay.runs_on_database(p_cell.cell_id, p_runtime.incarnation, p_now) then 'reserve'
  end
$$;
