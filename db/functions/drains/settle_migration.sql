-- Marks the open migration of a host once it is seated on the target, and completes it once it has left the source.
-- Caller: activate_control, release_lease, advance_migration, which hold the host's row. Locks: the migration.
-- Outcome: the step that comes next, null without an open migration or after it is complete.
create or replace function relay.settle_migration(p_user_id text, p_relay_host_id text, p_now timestamptz)
returns text
language plpgsql
as $$
declare
  v_migration relay.migration;
  v_step text;
begin
  select m.* into v_migration
  from relay.migration m
  where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.completed_at is null and m.aborted_at is null
  for update;
  if not found then
    return null;
  end if;
  v_step := relay.migration_step(v_migration, p_now);
  if v_step = 'register' then
    update relay.migration m
    set registered_at = p_now,
      target_incarnation = (select r.incarnation from relay.cell_runtime r where r.cell_id = v_migration.target_cell)
    where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.epoch = v_migration.epoch
    returning m.* into v_migration;
    v_step := relay.migration_step(v_migration, p_now);
  end if;
  if v_step <> 'complete' then
    return v_step;
  end if;
  update relay.migration m
  set completed_at = p_now
  where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.epoch = v_migration.epoch;
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, detail, at)
  values ('migration', v_migration.source_cell, v_migration.target_cell, p_user_id, p_relay_host_id, v_migration.epoch,
    '{"state": "completed"}', p_now);
  return null;
end
$$;
