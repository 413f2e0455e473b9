-- Ends the open migration of a host that is moved again: it was overtaken. Writes the change.
-- Caller: every function that gives a host a higher epoch, and holds its row. Locks: the migration.
create or replace function relay.abort_migration(
  p_user_id text, p_relay_host_id text, p_epoch bigint, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  with aborted as (
    update relay.migration m
    set aborted_at = p_now
    where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id
      and m.completed_at is null and m.aborted_at is null and m.epoch < p_epoch
    returning m.source_cell, m.target_cell, m.epoch
  )
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, detail, at)
  select 'migration', m.source_cell, m.target_cell, p_user_id, p_relay_host_id, m.epoch, '{"state": "aborted"}', p_now
  from aborted m;
end
$$;
