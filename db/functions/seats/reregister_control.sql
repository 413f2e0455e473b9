-- Gives a control that was admitted from memory its lease: at exactly the epoch of the host's row, or not at all. Waits for
-- nobody. A newer control of the host on this process keeps the lease: the batch was on its way when it attached.
-- Caller: reregister_controls. Locks: the host's row, then its lease here, both passed over if locked; then its migration.
create or replace function relay.reregister_control(
  p_cell_id text, p_incarnation uuid, p_control relay.control, out outcome text, out lease_expires_at timestamptz)
language plpgsql
as $$
declare
  v_row relay.assignment;
  v_lease relay.lease;
  v_is_there boolean;
begin
  select a.* into v_row
  from relay.assignment a
  where a.user_id = p_control.user_id and a.relay_host_id = p_control.relay_host_id
  for no key update skip locked;
  if v_row.cell_id is null and exists (select from relay.assignment a
    where a.user_id = p_control.user_id and a.relay_host_id = p_control.relay_host_id) then
    outcome := 'busy';
    return;
  end if;
  select l.* into v_lease
  from relay.lease l
  where l.user_id = p_control.user_id and l.relay_host_id = p_control.relay_host_id and l.cell_id = p_cell_id
  for update skip locked;
  v_is_there := exists (select from relay.lease l
    where l.user_id = p_control.user_id and l.relay_host_id = p_control.relay_host_id and l.cell_id = p_cell_id);
  outcome := case
    when not relay.is_incarnation(p_cell_id, p_incarnation) then 'stale_cell_incarnation'
    when v_row.cell_id is null then 'no_assignment'
    when v_row.epoch < p_control.epoch then 'behind'
    when v_row.cell_id <> p_cell_id then 'wrong_cell'
    when v_row.epoch > p_control.epoch then 'wrong_epoch'
    when v_is_there and v_lease.cell_id is null then 'busy'
    when v_lease.state = 'active' and v_lease.incarnation = p_incarnation and v_lease.epoch = p_control.epoch
      and v_lease.generation > p_control.generation then 'superseded'
    else 'active'
  end;
  if outcome = 'active' then
    lease_expires_at := relay.attach_control(v_row, p_incarnation, p_control.generation, p_control.units,
      p_control.inclusion_watermark, relay.now());
  end if;
end
$$;
