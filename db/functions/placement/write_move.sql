-- Writes a move: the host's other leases end, at once (forced) or in 60 s (retiring); the row names the target at a new
-- epoch; a lease is granted there. Null: no epoch can be minted yet.
-- Caller: attempt_assign, which holds the host's row and the latches. Locks: the host's leases.
create or replace function relay.write_move(
  p_ask relay.ask, p_decision relay.decision, p_target relay.target, p_now timestamptz)
returns bigint
language plpgsql
as $$
declare
  v_epoch constant bigint := relay.mint_epoch(p_decision.epoch, p_ask.epoch_floor);
  v_retire_until timestamptz;
begin
  if v_epoch is null then
    return null;
  end if;
  if p_decision.forced then
    delete from relay.lease l where l.user_id = p_ask.user_id and l.relay_host_id = p_ask.relay_host_id;
  else
    v_retire_until := p_now + relay.span_of('retiringLeaseMs');
    update relay.lease l
    set state = 'retiring', retire_until = v_retire_until
    where l.user_id = p_ask.user_id and l.relay_host_id = p_ask.relay_host_id and l.state <> 'retiring';
  end if;
  update relay.assignment a
  set cell_id = p_target.cell_id, epoch = v_epoch, last_activity_at = p_now,
    unattached_since = coalesce(a.unattached_since, p_now),
    preferred_region = coalesce(p_ask.preferred_region, a.preferred_region),
    preferred_region_at = case when p_ask.preferred_region is null then a.preferred_region_at else p_now end
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id;
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, detail, at)
  values ('moved', p_decision.cell_id, p_target.cell_id, p_ask.user_id, p_ask.relay_host_id, v_epoch, p_decision.rule,
    jsonb_build_object('forced', p_decision.forced, 'retire_until', (extract(epoch from v_retire_until) * 1000)::bigint),
    p_now);
  return v_epoch;
end
$$;
