-- Why a home that is not live is not (03, rule 14). Caller: decide_assign. Locks: none.
-- Outcomes: booting, draining, unheard, not_ready.
create or replace function relay.unavailable_cause(p_cell relay.cell, p_runtime relay.cell_runtime, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_cell.cell_id is null or p_runtime.cell_id is null then 'booting'
    when p_cell.admission = 'existing-only' then 'draining'
    when p_cell.drain_incarnation = p_runtime.incarnation
      and (p_now - p_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true then 'draining'
    when p_runtime.heard_at <= p_now - relay.span_of('heartbeatTtlMs') then 'unheard'
    else 'not_ready'
  end
$$;
