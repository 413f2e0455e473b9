-- What a row of the table of assign leads to (03, assign, outcome).
-- Actions: keep and refuse are answers; grant (a lease on the home), remint (a new epoch on the home), place and move are
-- for attempt_assign to write. `if_full` is what becomes of a move for which there is no target.
-- Caller: decide_assign. Locks: none.
create or replace function relay.outcome_of(
  p_rule text, p_free_units int, p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns relay.decision
language plpgsql stable
as $$
declare
  v_d relay.decision;
  v_is_host constant boolean := p_ask.requested_by = 'host';
begin
  v_d.rule := p_rule;
  v_d.cell_id := p_home.cell_id; v_d.cell_url := p_home.url; v_d.region := p_home.region; v_d.latch := p_home.latch;
  v_d.epoch := p_home.epoch; v_d.free_units := p_free_units; v_d.holds := p_home.holds; v_d.records := p_home.is_newer;
  v_d.target_region := coalesce(p_ask.preferred_region, p_home.preference, p_home.region);
  if p_rule in ('sticky', 'reserve-pin') then
    v_d.action := case when p_home.holds or not v_is_host or p_home.reserve then 'keep' else 'grant' end;
    v_d.outcome := 'granted';
    v_d.lease_expires_at := case when p_home.holds then p_home.lease_expires_at else p_now + relay.span_of('grantLeaseMs') end;
    v_d.stamp_due := p_rule = 'sticky' and v_is_host and p_home.holds
      and p_home.last_activity_at <= p_now - relay.span_of('activityStampIntervalMs');
    return v_d;
  elsif p_rule = 'no-headroom' then
    v_d.action := 'refuse'; v_d.outcome := 'no_headroom';
    return v_d;
  elsif p_rule = 'home-unavailable' or p_rule = 'behind' and not v_is_host then
    v_d.action := 'refuse'; v_d.outcome := 'unavailable';
    v_d.cause := case p_rule when 'behind' then 'behind' else relay.unavailable_cause(p_home) end;
    v_d.verdict_wanted := p_rule <> 'behind' and relay.is_dead_reserve(p_ask, p_home, p_now);
    return v_d;
  end if;
  v_d.outcome := 'would_place';
  v_d.action := case
    when p_rule = 'new' then 'place'
    when p_rule = 'behind' and p_free_units > 0 then 'remint'
    else 'move'
  end;
  v_d.forced := true; v_d.if_full := 'no_capacity';
  v_d.excluded := case when p_rule not in ('behind', 'dormant') then p_home.cell_id end;
  if p_rule in ('roll-isolated', 'draining-home', 'headroom', 'roll-replaced') then
    v_d.forced := false;
    v_d.grace_ms := case when p_home.draining then p_home.drain_grace_ms else relay.limit_of('retiringLeaseMs') end;
  end if;
  if p_rule in ('roll-isolated', 'draining-home', 'roll-replaced') then
    v_d.target_region := p_home.region;
  end if;
  if p_rule = 'roll-isolated' then
    v_d.if_full := 'keep';
    v_d.lease_expires_at := case when p_home.holds then p_home.lease_expires_at else p_now + relay.span_of('grantLeaseMs') end;
  elsif p_rule = 'roll-replaced' and p_home.capped then
    v_d.if_full := 'unavailable';
    v_d.cause := relay.unavailable_cause(p_home);
  end if;
  return v_d;
end
$$;
