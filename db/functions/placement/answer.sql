-- A decision that needs no write, as assign answers it. A refusal names a cell only when a verdict on it is wanted.
-- Caller: assign, apply_assign. Locks: none.
create or replace function relay.answer(p_decision relay.decision, p_now timestamptz)
returns relay_v1.assign_result
language plpgsql immutable
as $$
declare
  v_result relay_v1.assign_result;
begin
  v_result.outcome := p_decision.outcome;
  v_result.rule := p_decision.rule;
  v_result.cause := case when p_decision.outcome = 'unavailable' then p_decision.cause end;
  if p_decision.outcome = 'granted' then
    v_result.cell_id := p_decision.cell_id;
    v_result.cell_url := p_decision.cell_url;
    v_result.region := p_decision.region;
    v_result.epoch := p_decision.epoch;
    v_result.lease_expires_at := p_decision.lease_expires_at;
  end if;
  v_result.moved := false;
  v_result.verdict_wanted := coalesce(p_decision.verdict_wanted and p_decision.outcome = 'unavailable', false);
  if v_result.verdict_wanted then
    v_result.cell_id := p_decision.cell_id;
  end if;
  v_result.decided_at := p_now;
  return v_result;
end
$$;
