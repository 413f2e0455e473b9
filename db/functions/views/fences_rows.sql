-- The rows of the view relay_v1.fences: of each cell the fence, and the attempt that is open or made it.
-- Caller: view fences. Locks: none.
create or replace function relay.fences_rows()
returns table (
  cell_id text, incarnation uuid, state text, fenced boolean, expires_in interval, attempt_id uuid, operation_id text,
  reason text, begun_at timestamptz, started_at timestamptz, completed_at timestamptz, committed_at timestamptz,
  lease_expires_in interval)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select t.cell_id, t.incarnation, relay.attempt_state(t, v_now),
    f.attempt_id is not null and relay.is_fenced(t.cell_id, v_now), f.expires_at - v_now, t.attempt_id, t.operation_id,
    t.reason, t.begun_at, t.started_at, t.completed_at, f.committed_at, m.expires_at - v_now
  from relay.fence_attempt t
  left join relay.fence f on f.attempt_id = t.attempt_id
  left join relay.mutation_lease m on m.attempt_id = t.attempt_id
  where t.closed_at is null and (t.completed_at is null or f.attempt_id is not null);
end
$$;
