-- Moves one host whose migration's target died to another target. True if it was moved; false if the migration has ended
-- meanwhile, or no epoch can be minted yet. Caller: supersede_target, which holds the host's row and the latches. Locks: the host's leases and migrations.
create or replace function relay.supersede_migration(p_host relay.assignment, p_target_cell text, p_now timestamptz)
returns boolean
language plpgsql
as $$
declare
  v_old relay.migration;
  v_epoch bigint;
begin
  select m.* into v_old
  from relay.migration m
  where m.user_id = p_host.user_id and m.relay_host_id = p_host.relay_host_id and m.epoch = p_host.epoch
    and m.completed_at is null and m.aborted_at is null
  for update;
  if not found then
    return false;
  end if;
  v_epoch := relay.relocate_host(p_host, p_target_cell, 'superseded', null, p_now);
  if v_epoch is null then
    return false;
  end if;
  perform relay.grant_relocated(p_host, p_target_cell, v_epoch, p_now);
  perform relay.open_migration(p_host.user_id, p_host.relay_host_id, v_epoch, v_old.source_cell, p_target_cell,
    v_old.pinned_at is not null, p_now);
  update relay.migration m
  set source_incarnation = v_old.source_incarnation, pinned_at = v_old.pinned_at
  where m.user_id = p_host.user_id and m.relay_host_id = p_host.relay_host_id and m.epoch = v_epoch;
  return true;
end
$$;
