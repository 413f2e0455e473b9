-- Everything about a host and its home that the table of assign looks at: of its row, or of the seat that the director
-- knows, if that is newer (03, `seen`: decided as if the row said so). All null: no row.
-- `stable`, so that all four look-ups see one snapshot; one statement that joins them costs ×1.6.
-- Caller: assign, apply_assign, attempt_assign, explain_assign, simulate_outage. Locks: none.
create or replace function relay.read_home(p_ask relay.ask, p_now timestamptz)
returns relay.home
language plpgsql stable
as $$
declare
  v_row relay.assignment;
  v_lease relay.lease;
  v_cell relay.cell;
  v_runtime relay.cell_runtime;
  v_fresh boolean;
  v_is_newer boolean;
begin
  select a.* into v_row
  from relay.assignment a
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id;
  v_is_newer := coalesce(p_ask.seen_epoch > coalesce(v_row.epoch, 0), false);
  if v_is_newer then
    v_row.cell_id := p_ask.seen_cell_id; v_row.epoch := p_ask.seen_epoch;
    v_row.last_activity_at := p_now; v_row.unattached_since := null;
  end if;
  select l.* into v_lease
  from relay.lease l
  where l.user_id = p_ask.user_id and l.relay_host_id = p_ask.relay_host_id and l.cell_id = v_row.cell_id;
  select c.* into v_cell from relay.cell c where c.cell_id = v_row.cell_id;
  select r.* into v_runtime from relay.cell_runtime r where r.cell_id = v_cell.cell_id;
  v_fresh := coalesce(v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs'), false);
  return (v_row.cell_id, v_row.epoch, v_is_newer, v_row.last_activity_at, v_row.unattached_since,
    case when v_row.preferred_region_at > p_now - relay.span_of('regionPreferenceTtlMs') then v_row.preferred_region end,
    coalesce(v_lease.epoch = v_row.epoch and v_lease.state <> 'retiring' and v_lease.expires_at > p_now, false),
    v_lease.expires_at,
    v_cell.url, v_cell.region, v_cell.latch, v_cell.admission, v_cell.unit_limit, v_cell.connection_hard_cap is not null,
    v_cell.admit_mode = 'reserve', v_cell.roll_isolated_at,
    coalesce(v_cell.admission = 'migration-only'
      and v_cell.roll_isolated_at > p_now - relay.span_of('rollStampTtlMs'), false),
    coalesce(v_cell.drain_incarnation = v_runtime.incarnation, false), v_cell.drain_grace_ms,
    v_runtime.heard_at, v_runtime.started_at, v_fresh, v_fresh and v_runtime.ready,
    coalesce(v_runtime.total_connections = 0 and v_runtime.in_flight_connections = 0 and v_runtime.enforced_units = 0, false),
    null)::relay.home;
end
$$;
