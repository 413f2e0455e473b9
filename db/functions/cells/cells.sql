-- All cells with their last heartbeat. Caller: director, on a doorbell and at a poll. Locks: none.
create or replace function relay_v1.cells()
returns table (
  cell_id text, url text, region text, admission text, admit_mode text, capacity_units int, connection_hard_cap int,
  connection_unobserved_bound int, incarnation uuid, started_at timestamptz, ready boolean, heard_age_ms bigint,
  enforced_units int, draining boolean, rolling boolean)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.url, c.region, c.admission, c.admit_mode, c.capacity_units, c.connection_hard_cap,
    c.connection_unobserved_bound, r.incarnation, r.started_at, r.ready,
    (extract(epoch from v_now - r.heard_at) * 1000)::bigint, r.enforced_units,
    coalesce(c.drain_incarnation = r.incarnation, false),
    coalesce(c.admission = 'migration-only' and c.roll_isolated_at > v_now - relay.span_of('rollStampTtlMs'), false)
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  order by c.cell_id;
end
$$;
comment on function relay_v1.cells() is 'All cells with their last heartbeat';
