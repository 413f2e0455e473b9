-- Writes a change of a cell's state and rings the doorbell, channel relay_doorbell. The payload is a hint, never data:
-- readers look at their cursor. Never called in a host's transaction: NOTIFY takes one lock for the whole database
-- at commit, ×2–4 at 8–32 writers.
-- Caller: functions that change a cell. Locks: none.
create or replace function relay.ring(p_kind text, p_cell_id text, p_detail jsonb, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  insert into relay.change (kind, to_cell, detail, at) values (p_kind, p_cell_id, p_detail, p_now);
  perform pg_notify('relay_doorbell', p_cell_id);
end
$$;
