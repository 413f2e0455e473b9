-- Moves one host off a cell that is evacuated. A seated host keeps its seat for the grace, is promised one on the target
-- and gets a migration; one that holds nothing only gets another row. One that was promised a seat and is on its way, that
-- is not done with an earlier migration, or for whose seat there is no room, is left for a later call.
-- Caller: evacuate_cell, which holds the host's row and the latches. Locks: the host's leases.
-- Outcome: units that it takes on the target (1 or 0), null if it was left.
create or replace function relay.evacuate_host(
  p_host relay.assignment, p_target_cell text, p_has_room boolean, p_pinned boolean, p_grace interval, p_now timestamptz)
returns int
language plpgsql
as $$
declare
  v_state text;
  v_epoch bigint;
begin
  if not relay.may_be_evacuated(p_host, p_now) then
    return null;
  end if;
  select l.state into v_state
  from relay.lease l
  where l.user_id = p_host.user_id and l.relay_host_id = p_host.relay_host_id and l.cell_id = p_host.cell_id
    and l.epoch = p_host.epoch and l.expires_at > p_now;
  if v_state = 'active' and not p_has_room then
    return null;
  end if;
  v_epoch := relay.relocate_host(p_host, p_target_cell, 'evacuated',
    case when v_state = 'active' then p_now + p_grace end, p_now);
  if v_epoch is null or v_state is null then
    return case when v_epoch is not null then 0 end;
  end if;
  perform relay.grant_relocated(p_host, p_target_cell, v_epoch, p_now);
  perform relay.open_migration(p_host.user_id, p_host.relay_host_id, v_epoch, p_host.cell_id, p_target_cell, p_pinned, p_now);
  return relay.limit_of('controlUnits');
end
$$;
