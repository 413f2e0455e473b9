-- Opens the migration of a host that has just been moved, and writes the change. Pinned if the source was told to drain.
-- Caller: write_move (rule 5), evacuate_cell, supersede_target, which hold the host's row. Locks: none more.
create or replace function relay.open_migration(
  p_user_id text, p_relay_host_id text, p_epoch bigint, p_source_cell text, p_target_cell text, p_pinned boolean,
  p_now timestamptz)
returns void
language plpgsql
as $$
begin
  insert into relay.migration (user_id, relay_host_id, epoch, source_cell, source_incarnation, target_cell, opened_at,
    expires_at, pinned_at)
  values (p_user_id, p_relay_host_id, p_epoch, p_source_cell,
    (select r.incarnation from relay.cell_runtime r where r.cell_id = p_source_cell), p_target_cell, p_now,
    p_now + relay.span_of('migrationLeaseMs'), case when p_pinned then p_now end);
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, detail, at)
  values ('migration', p_source_cell, p_target_cell, p_user_id, p_relay_host_id, p_epoch,
    jsonb_build_object('state', 'opened', 'pinned', p_pinned), p_now);
end
$$;
