-- The first check that a heartbeat fails, or null. The order is the order of the checks that operators know.
-- Caller: heartbeat, which holds the runtime row. Locks: none.
-- Outcomes: cell_not_found, cell_origin_mismatch, cell_region_mismatch, stale_cell_incarnation (another start of the same
-- process, or a process that did not start later), cell_connection_telemetry_mismatch (a capped cell whose counts are
-- incomplete, do not add up or name another limit), cell_connection_limit_not_configured (an uncapped one that sends
-- such counts), stale_connection_snapshot (a lower watermark).
create or replace function relay.heartbeat_refusal(
  p_cell relay.cell, p_runtime relay.cell_runtime, p_url text, p_region text, p_incarnation uuid,
  p_started_at timestamptz, p_load jsonb)
returns text
language plpgsql immutable
as $$
declare
  c_counts constant text[] := array['total_connections', 'in_flight_connections', 'reserved_units', 'hard_cap', 'unobserved_bound'];
begin
  if p_cell.cell_id is null then
    return 'cell_not_found';
  elsif p_cell.url <> p_url then
    return 'cell_origin_mismatch';
  elsif p_cell.region <> p_region then
    return 'cell_region_mismatch';
  elsif p_runtime.incarnation = p_incarnation and p_runtime.started_at <> p_started_at
    or p_runtime.incarnation <> p_incarnation and p_runtime.started_at >= p_started_at then
    return 'stale_cell_incarnation';
  elsif p_cell.connection_hard_cap is null and p_load ?| c_counts then
    return 'cell_connection_limit_not_configured';
  elsif p_cell.connection_hard_cap is not null and not coalesce(
    (p_load ->> 'total_connections')::int + (p_load ->> 'in_flight_connections')::int + (p_load ->> 'reserved_units')::int
      = (p_load ->> 'enforced_units')::int
    and (p_load ->> 'hard_cap')::int = p_cell.connection_hard_cap
    and (p_load ->> 'unobserved_bound')::int = p_cell.connection_unobserved_bound, false) then
    return 'cell_connection_telemetry_mismatch';
  elsif p_runtime.incarnation = p_incarnation
    and (p_load ->> 'inclusion_watermark')::bigint < p_runtime.inclusion_watermark then
    return 'stale_connection_snapshot';
  end if;
  return null;
end
$$;
