-- Makes the lease of a host active under its control, and forgets why it closed last and that it was unattached. A migration
-- that brought it here is marked, and completed if its old seat is gone.
-- Caller: activate_control, reregister_control, which hold the host's row. Locks: the host's lease, then its migration.
-- Outcome: the end of the lease.
create or replace function relay.attach_control(
  p_row relay.assignment, p_incarnation uuid, p_generation bigint, p_units int, p_inclusion_watermark bigint,
  p_now timestamptz)
returns timestamptz
language plpgsql
as $$
declare
  v_expires_at timestamptz;
begin
  insert into relay.lease as l (user_id, relay_host_id, cell_id, epoch, incarnation, generation, state, units,
    inclusion_watermark, expires_at)
  values (p_row.user_id, p_row.relay_host_id, p_row.cell_id, p_row.epoch, p_incarnation, p_generation, 'active', p_units,
    p_inclusion_watermark, p_now + relay.span_of('renewedLeaseMs'))
  on conflict on constraint lease_pkey do update
  set epoch = excluded.epoch, incarnation = excluded.incarnation, generation = excluded.generation,
    state = excluded.state, units = excluded.units, inclusion_watermark = excluded.inclusion_watermark,
    expires_at = greatest(l.expires_at, excluded.expires_at), retire_until = null
  returning l.expires_at into v_expires_at;
  update relay.assignment a
  set last_activity_at = p_now, unattached_since = null, last_close_reason = null, last_close_reason_at = null
  where a.user_id = p_row.user_id and a.relay_host_id = p_row.relay_host_id;
  perform relay.settle_migration(p_row.user_id, p_row.relay_host_id, p_now);
  return v_expires_at;
end
$$;
