-- A host has proven itself on a cell: checks its seat once more and makes its lease active. Forgets why it closed
-- last, and that it was unattached. A migration that brought it here is marked, and completed if its old seat is gone.
-- Caller: cell, after the proof, and to take a lease again that a renewal did not find. Locks: the host's row (≤ 500 ms),
-- then its lease, then its migration.
-- Outcomes: active, wrong_cell, wrong_epoch, no_assignment, stale_cell_incarnation, busy.
create or replace function relay_v1.activate_control(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, epoch bigint, generation bigint,
  inclusion_watermark bigint)
returns relay_v1.activate_control_result
language plpgsql
security definer
set search_path = relay, pg_temp
set lock_timeout = '500ms'
as $$
declare
  v_row relay.assignment;
  v_now timestamptz;
  v_expires_at timestamptz;
begin
  if num_nulls(activate_control.incarnation, activate_control.epoch, activate_control.generation,
    activate_control.inclusion_watermark) > 0 then
    perform relay.misuse('activate_control: incarnation, epoch, generation and inclusion_watermark are needed');
  end if;
  begin
    select a.* into v_row
    from relay.assignment a
    where a.user_id = activate_control.user_id and a.relay_host_id = activate_control.relay_host_id
    for no key update;
    if not relay.is_incarnation(activate_control.cell_id, activate_control.incarnation) then
      return ('stale_cell_incarnation', null)::relay_v1.activate_control_result;
    elsif v_row.cell_id is null then
      return ('no_assignment', null)::relay_v1.activate_control_result;
    elsif v_row.cell_id <> activate_control.cell_id then
      return ('wrong_cell', null)::relay_v1.activate_control_result;
    elsif v_row.epoch <> activate_control.epoch then
      return ('wrong_epoch', null)::relay_v1.activate_control_result;
    end if;
    v_now := relay.now();
    insert into relay.lease as l (user_id, relay_host_id, cell_id, epoch, incarnation, generation, state, units,
      inclusion_watermark, expires_at)
    values (v_row.user_id, v_row.relay_host_id, v_row.cell_id, v_row.epoch, activate_control.incarnation,
      activate_control.generation, 'active', relay.limit_of('controlUnits'), activate_control.inclusion_watermark,
      v_now + relay.span_of('renewedLeaseMs'))
    on conflict on constraint lease_pkey do update
    set epoch = excluded.epoch, incarnation = excluded.incarnation, generation = excluded.generation,
      state = excluded.state, units = excluded.units, inclusion_watermark = excluded.inclusion_watermark,
      expires_at = greatest(l.expires_at, excluded.expires_at), retire_until = null
    returning l.expires_at into v_expires_at;
    update relay.assignment a
    set last_activity_at = v_now, unattached_since = null, last_close_reason = null, last_close_reason_at = null
    where a.user_id = v_row.user_id and a.relay_host_id = v_row.relay_host_id;
    perform relay.settle_migration(v_row.user_id, v_row.relay_host_id, v_now);
    return ('active', v_expires_at)::relay_v1.activate_control_result;
  exception
    when lock_not_available or deadlock_detected then
      return ('busy', null)::relay_v1.activate_control_result;
  end;
end
$$;
comment on function relay_v1.activate_control(text, text, text, uuid, bigint, bigint, bigint) is
  'Checks the seat of a host that has proven itself and makes its lease active';
