-- A host has proven itself on a cell: checks its seat once more and makes its lease active (attach_control).
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
    v_expires_at := relay.attach_control(v_row, activate_control.incarnation, activate_control.generation,
      relay.limit_of('controlUnits')::int, activate_control.inclusion_watermark, relay.now());
    return ('active', v_expires_at)::relay_v1.activate_control_result;
  exception
    when lock_not_available or deadlock_detected then
      return ('busy', null)::relay_v1.activate_control_result;
  end;
end
$$;
comment on function relay_v1.activate_control(text, text, text, uuid, bigint, bigint, bigint) is
  'Checks the seat of a host that has proven itself and makes its lease active';
