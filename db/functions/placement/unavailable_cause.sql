-- Why a home that is not live is not (03, rule 14). Caller: outcome_of, is_dead_reserve. Locks: none.
-- Outcomes: booting, draining, unheard, not_ready.
create or replace function relay.unavailable_cause(p_home relay.home)
returns text
language plpgsql immutable
as $$
begin
  return case
    when p_home.heard_at is null then 'booting'
    when p_home.admission = 'existing-only' then 'draining'
    when p_home.draining and not p_home.rolling then 'draining'
    when not p_home.fresh then 'unheard'
    else 'not_ready'
  end;
end
$$;
