-- What is to be done about a host that is asked for: the table of 03-decisions.md, assign, a `when` for each row, from top
-- to bottom. The first row that matches and whose *who* includes the caller wins; a caller that a row excludes falls
-- through. Reads, and neither writes nor locks; what a row leads to is in outcome_of.
-- Caller: assign unlocked, attempt_assign under its locks, explain_assign, simulate_outage. Locks: none.
create or replace function relay.decide_assign(p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns relay.decision
language plpgsql stable
as $$
declare
  v_rule text;
  v_free_units int;
  v_is_host constant boolean := p_ask.requested_by = 'host';
  v_is_caller constant boolean := p_ask.requested_by in ('host', 'resolve', 'invite');
begin
  -- a host that holds its lease has its place: its cell is not counted
  if p_home.live and (not p_home.holds or p_home.epoch < p_ask.epoch_floor) then
    v_free_units := p_home.unit_limit - relay.load(p_home.cell_id, p_now);
  end if;
  v_rule := case
    -- 0 a booking or a leaver is newer than the row
    when p_home.epoch < p_ask.epoch_floor and p_home.live then 'behind'
    -- 1
    when v_is_caller and p_home.cell_id is null then 'new'
    -- 2 the activity of a host on a fresh reserve cell lives in the memory of that cell
    when v_is_host and not p_home.holds and p_home.last_activity_at <= p_now - relay.span_of('dormantTtlMs')
      and not (p_home.reserve and p_home.fresh) and relay.is_dormant(p_ask, p_home, p_now) then 'dormant'
    -- 3
    when v_is_host and p_home.admission = 'existing-only'
      and p_home.unattached_since <= p_now - relay.span_of('strandedAfterMs')
      and p_home.last_activity_at > p_now - relay.span_of('strandedAskWindowMs') then 'stranded'
    -- 4
    when v_is_host and p_home.live and p_home.rolling
      and not relay.is_migrating(p_ask.user_id, p_ask.relay_host_id) then 'roll-isolated'
    -- 5
    when v_is_host and p_home.live and not p_home.reserve and p_home.draining then 'draining-home'
    -- 6
    when p_home.live and p_home.reserve then 'reserve-pin'
    -- 7
    when p_home.live and (p_home.holds or v_free_units > 0) then 'sticky'
    -- 8 no lease is held, or it would be row 7
    when v_is_host and p_home.live and p_home.admission = 'general' then 'headroom'
    -- 9 from here on the home is not live
    when p_home.live then 'no-headroom'
    -- 10 another process than the drained one, and nobody on it
    when v_is_caller and p_home.rolling and p_home.fresh and p_home.started_at > p_home.roll_isolated_at
      and (p_home.idle or not p_home.capped)
      and not relay.is_migrating(p_ask.user_id, p_ask.relay_host_id) then 'roll-replaced'
    -- 11
    when v_is_host and p_home.heard_at is not null and not p_home.capped
      and not relay.is_pinned(p_ask, p_home) and relay.is_judged(p_home, p_now) then 'dead-uncapped'
    -- 12
    when p_ask.requested_by <> 'operator' and relay.is_fenced(p_home.cell_id, p_now) then 'fenced'
    -- 13
    when relay.is_dead_reserve(p_ask, p_home, p_now) and relay.polls_say_dead(p_ask, p_home, p_now) then 'dead-reserve'
    -- 14
    else 'home-unavailable'
  end;
  return relay.outcome_of(v_rule, v_free_units, p_ask, p_home, p_now);
end
$$;
