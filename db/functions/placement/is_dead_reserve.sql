-- Whether a host may leave its dead reserve cell without a fence, but for what the director's polls say (03, dead, 1 to 5).
-- The mode stands in the row of the cell, which a flip changes under the latch that attempt_assign holds shared.
-- Caller: decide_assign (rule 13), outcome_of (a verdict is wanted). Locks: none.
create or replace function relay.is_dead_reserve(p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return p_ask.requested_by = 'host'
    and not relay.is_pinned(p_ask, p_home)
    and coalesce(p_home.reserve, false)
    and relay.unavailable_cause(p_home) = 'unheard' and relay.is_judged(p_home, p_now)
    and p_ask.epoch_floor is not null;
end
$$;
