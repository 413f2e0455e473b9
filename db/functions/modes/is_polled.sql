-- Whether a director that places by booking has polled the process that a cell was last heard as, within the last 45 s, as its
-- heartbeat says. Caller: set_admit_mode, view modes. Locks: none.
create or replace function relay.is_polled(p_cell_id text, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.cell_runtime r
    where r.cell_id = p_cell_id and r.director_seen_at > p_now - relay.span_of('heartbeatTtlMs'));
end
$$;
