-- Stamps a host that was granted a lease without a move, and writes the change.
-- Caller: attempt_assign, which holds the host's row. Locks: none more.
create or replace function relay.note_grant(p_ask relay.ask, p_result relay_v1.assign_result, p_is_new boolean)
returns void
language plpgsql
as $$
begin
  if not p_is_new then
    update relay.assignment a
    set last_activity_at = p_result.decided_at,
      unattached_since = coalesce(a.unattached_since, p_result.decided_at),
      preferred_region = coalesce(p_ask.preferred_region, a.preferred_region),
      preferred_region_at = case when p_ask.preferred_region is null then a.preferred_region_at else p_result.decided_at end
    where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id;
  end if;
  insert into relay.change (kind, to_cell, user_id, relay_host_id, epoch, rule, at)
  values (case when p_is_new then 'placed' else 'granted' end, p_result.cell_id, p_ask.user_id, p_ask.relay_host_id,
    p_result.epoch, p_result.rule, p_result.decided_at);
end
$$;
