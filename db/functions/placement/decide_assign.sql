-- What is to be done about a host that is asked for: the table of 03-decisions.md, assign, from top to bottom. Reads,
-- and neither writes nor locks. The first row that matches and whose *who* includes the caller wins.
-- Actions: keep and refuse are answers; grant (a lease on the home), place and move are for attempt_assign to write.
-- Caller: assign unlocked, attempt_assign under its locks, explain_assign. Locks: none.
create or replace function relay.decide_assign(p_ask relay.ask, p_now timestamptz)
returns relay.decision
language plpgsql stable
as $$
declare
  v record;
  v_d relay.decision;
  v_holds boolean;
  v_is_host constant boolean := p_ask.requested_by = 'host';
begin
  -- `offset 0` keeps four look-ups by key four look-ups: joins of such small tables cost ×2
  select a.cell_id, a.epoch, a.last_activity_at, l.expires_at,
    l.epoch = a.epoch and l.state <> 'retiring' and l.expires_at > p_now as holds,
    c.url, c.region, c.latch, c.admission, c.unit_limit, c.connection_hard_cap,
    c.cell_id = r.cell_id and r.ready and r.heard_at > p_now - relay.span_of('heartbeatTtlMs') as live, r.heard_at,
    case when a.preferred_region_at > p_now - relay.span_of('regionPreferenceTtlMs')
      then a.preferred_region end as preference
  into v
  from relay.assignment a
  left join lateral (select x.* from relay.lease x where x.user_id = p_ask.user_id
    and x.relay_host_id = p_ask.relay_host_id and x.cell_id = a.cell_id offset 0) l on true
  left join lateral (select x.* from relay.cell x where x.cell_id = a.cell_id offset 0) c on true
  left join lateral (select x.* from relay.cell_runtime x where x.cell_id = a.cell_id offset 0) r on true
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id;

  -- 0 behind: needs the floors of reserve mode
  -- 1 new
  if not found and p_ask.requested_by in ('host', 'resolve', 'invite') then
    v_d.action := 'place'; v_d.outcome := 'would_place'; v_d.rule := 'new';
    v_d.target_region := p_ask.preferred_region;
    return v_d;
  end if;
  v_d.cell_id := v.cell_id; v_d.cell_url := v.url; v_d.region := v.region; v_d.latch := v.latch; v_d.epoch := v.epoch;
  v_d.target_region := coalesce(p_ask.preferred_region, v.preference, v.region);
  v_holds := coalesce(v.holds, false);
  -- 2 dormant
  if v_is_host and not v_holds and relay.is_dormant(p_ask.user_id, p_ask.relay_host_id, v.last_activity_at, p_now) then
    v_d.action := 'move'; v_d.outcome := 'would_place'; v_d.rule := 'dormant'; v_d.forced := true;
  -- 3 stranded, 4 roll-isolated, 5 draining-home: need migrations; 6 reserve-pin: needs reserve mode
  elsif v.live then
    if not v_holds then
      v_d.free_units := v.unit_limit - relay.load(v.cell_id, p_now);
    end if;
    -- 7 sticky
    if v_holds or v_d.free_units > 0 then
      v_d.action := case when v_holds or not v_is_host then 'keep' else 'grant' end;
      v_d.outcome := 'granted'; v_d.rule := 'sticky';
      v_d.lease_expires_at := case when v_holds then v.expires_at else p_now + relay.span_of('grantLeaseMs') end;
      v_d.stamp_due := v_is_host and v_holds
        and v.last_activity_at <= p_now - relay.span_of('activityStampIntervalMs');
    -- 8 headroom: no lease is held, so none is active
    elsif v_is_host and v.admission = 'general' then
      v_d.action := 'move'; v_d.outcome := 'would_place'; v_d.rule := 'headroom'; v_d.forced := false;
      v_d.excluded := v.cell_id;
    -- 9 no-headroom
    else
      v_d.action := 'refuse'; v_d.outcome := 'no_headroom'; v_d.rule := 'no-headroom';
    end if;
  -- 10 roll-replaced: needs migrations
  -- 11 dead-uncapped
  elsif v_is_host and v.heard_at is not null and v.connection_hard_cap is null and relay.hearing(p_now) then
    v_d.action := 'move'; v_d.outcome := 'would_place'; v_d.rule := 'dead-uncapped'; v_d.forced := true;
    v_d.excluded := v.cell_id;
  -- 12 fenced: needs fences; 13 dead-reserve: needs reserve mode
  -- 14 home-unavailable
  else
    v_d.action := 'refuse'; v_d.outcome := 'unavailable'; v_d.rule := 'home-unavailable';
    select relay.unavailable_cause(c, r, p_now) into v_d.cause
    from (values (v.cell_id)) home (cell_id)
    left join relay.cell c on c.cell_id = home.cell_id
    left join relay.cell_runtime r on r.cell_id = home.cell_id;
  end if;
  return v_d;
end
$$;
