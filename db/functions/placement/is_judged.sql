-- Whether a silence may be judged (03, hearing), or what simulate_outage assumes about it.
-- Caller: decide_assign (rule 11), is_dormant, is_dead_reserve. Locks: none.
create or replace function relay.is_judged(p_home relay.home, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return coalesce(p_home.judged, relay.hearing(p_now));
end
$$;
