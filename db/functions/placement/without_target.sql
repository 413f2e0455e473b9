-- What a decision becomes when no cell can take the host: rule 4 keeps it where it is, with a lease if there is room;
-- rule 10 on a capped cell is rule 14; every other is no_capacity. A decision that needs no target stays what it is.
-- Caller: apply_assign, attempt_assign, explain_assign, simulate_outage. Locks: none.
create or replace function relay.without_target(p_decision relay.decision)
returns relay.decision
language plpgsql immutable
as $$
declare
  v_d relay.decision := p_decision;
begin
  if v_d.action not in ('place', 'move') then
    return v_d;
  elsif v_d.if_full = 'keep' then
    v_d.action := case when v_d.free_units > 0 then 'grant' else 'keep' end;
    v_d.outcome := 'granted';
  elsif v_d.if_full = 'unavailable' then
    v_d.action := 'refuse'; v_d.outcome := 'unavailable'; v_d.rule := 'home-unavailable';
  else
    v_d.action := 'refuse'; v_d.outcome := 'no_capacity';
  end if;
  return v_d;
end
$$;
