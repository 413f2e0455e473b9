-- Ends the lease of a control that closed, and keeps why it closed. A late close of an older socket matches no lease any
-- more, and frees nothing. The last of the old seat completes a migration.
-- Caller: cell. Locks: the host's row (≤ 500 ms, then SQLSTATE 55P03: the lease ends by itself), then its lease, then its
-- migration.
-- Outcomes: released, not_held, stale_cell_incarnation.
create or replace function relay_v1.release_lease(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, epoch bigint, generation bigint,
  close_reason text default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
set lock_timeout = '500ms'
as $$
declare
  v_row relay.assignment;
  v_now timestamptz;
begin
  select a.* into v_row
  from relay.assignment a
  where a.user_id = release_lease.user_id and a.relay_host_id = release_lease.relay_host_id
  for no key update;
  if not relay.is_incarnation(release_lease.cell_id, release_lease.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  delete from relay.lease l
  where l.user_id = release_lease.user_id and l.relay_host_id = release_lease.relay_host_id
    and l.cell_id = release_lease.cell_id and l.incarnation = release_lease.incarnation
    and l.epoch = release_lease.epoch and l.generation = release_lease.generation;
  if not found then
    -- it was swept before the close came: the reason counts, unless somebody is seated there by now
    update relay.assignment a
    set last_close_reason = release_lease.close_reason, last_close_reason_at = relay.now()
    where a.user_id = release_lease.user_id and a.relay_host_id = release_lease.relay_host_id
      and a.cell_id = release_lease.cell_id and a.epoch = release_lease.epoch and release_lease.close_reason is not null
      and not exists (
        select from relay.lease l
        where l.user_id = a.user_id and l.relay_host_id = a.relay_host_id and l.cell_id = a.cell_id);
    return 'not_held';
  end if;
  v_now := relay.now();
  if v_row.cell_id = release_lease.cell_id and v_row.epoch = release_lease.epoch then
    update relay.assignment a
    set last_activity_at = v_now, last_close_reason = release_lease.close_reason,
      last_close_reason_at = case when release_lease.close_reason is not null then v_now end
    where a.user_id = release_lease.user_id and a.relay_host_id = release_lease.relay_host_id;
  else
    perform relay.settle_migration(release_lease.user_id, release_lease.relay_host_id, v_now);
  end if;
  insert into relay.change (kind, from_cell, user_id, relay_host_id, epoch, detail, at)
  values ('lease_ended', release_lease.cell_id, release_lease.user_id, release_lease.relay_host_id, release_lease.epoch,
    jsonb_build_object('reason', 'released', 'close_reason', release_lease.close_reason), v_now);
  return 'released';
end
$$;
comment on function relay_v1.release_lease(text, text, text, uuid, bigint, bigint, text) is
  'Ends the lease of a control that closed, and keeps why it closed';
