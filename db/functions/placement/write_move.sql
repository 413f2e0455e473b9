-- Writes a move: what the host holds elsewhere ends, at once (forced) or after a grace (retiring), and its migrations of
-- older epochs are overtaken; the row names the target at a new epoch; off a draining cell a pinned migration is opened.
-- Null: no epoch can be minted yet.
-- Caller: attempt_assign, which holds the host's row and the latches. Locks: the host's leases, its migration.
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
    v_retire_until := p_now + make_interval(secs => p_decision.grace_ms / 1000.0);
    perform relay.retire_leases(p_ask.user_id, p_ask.relay_host_id, v_retire_until);
  end if;
  perform relay.abort_migration(p_ask.user_id, p_ask.relay_host_id, v_epoch, p_now);
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
  if p_decision.rule = 'draining-home' then
    perform relay.open_migration(p_ask.user_id, p_ask.relay_host_id, v_epoch, p_decision.cell_id, p_target.cell_id, true, p_now);
  end if;
  return v_epoch;
end
$$;
