-- Stamps that a host which keeps its lease was active, and the region it asks for; at most once a minute a host.
-- Never waits: a stamp that somebody else's lock prevents comes with the next ask.
-- Caller: assign, outside its lock. Locks: the host's row, skipped if locked.
create or replace function relay.stamp_activity(p_ask relay.ask, p_decision relay.decision, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  update relay.assignment a
  set last_activity_at = p_now,
    preferred_region = coalesce(p_ask.preferred_region, a.preferred_region),
    preferred_region_at = case when p_ask.preferred_region is null then a.preferred_region_at else p_now end
  from (
    select x.user_id, x.relay_host_id
    from relay.assignment x
    where x.user_id = p_ask.user_id and x.relay_host_id = p_ask.relay_host_id
      and x.cell_id = p_decision.cell_id and x.epoch = p_decision.epoch
    for no key update skip locked
  ) mine
  where a.user_id = mine.user_id and a.relay_host_id = mine.relay_host_id;
end
$$;
