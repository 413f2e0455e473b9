-- Takes the latches of a decision: of the cell that the lease lands on in the mode that its free units ask for, of the
-- home that is left shared; in ascending order, never upgraded. True if the lease's cell is latched shared.
-- The first target is waited for, ≤ 500 ms; a further one is only tried: RL102 if it is not free.
-- Caller: attempt_assign, after the host's row. Locks: latches of home and target.
create or replace function relay.take_latches(p_decision relay.decision, p_target relay.target, p_wait boolean)
returns boolean
language plpgsql
as $$
declare
  v_latch constant int := coalesce(p_target.latch, p_decision.latch);
  v_home constant int := nullif(p_decision.latch, v_latch);
  v_free constant int := coalesce(p_target.free_units, p_decision.free_units);
  v_shared constant boolean := v_free > relay.limit_of('exclusiveLatchBelowUnits');
begin
  if v_home < v_latch then
    perform pg_advisory_xact_lock_shared(relay.latch_space(), v_home);
  end if;
  if p_wait and v_shared then
    perform pg_advisory_xact_lock_shared(relay.latch_space(), v_latch);
  elsif p_wait then
    perform pg_advisory_xact_lock(relay.latch_space(), v_latch);
  elsif v_shared and not pg_try_advisory_xact_lock_shared(relay.latch_space(), v_latch)
    or not v_shared and not pg_try_advisory_xact_lock(relay.latch_space(), v_latch) then
    raise exception using errcode = 'RL102', message = 'the latch of a further target is not free';
  end if;
  if v_home > v_latch then
    perform pg_advisory_xact_lock_shared(relay.latch_space(), v_home);
  end if;
  return v_shared;
end
$$;
