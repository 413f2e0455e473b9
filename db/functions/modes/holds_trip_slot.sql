-- Whether a cell runs on the database though it is recorded as reserve: it holds a trip slot. Neither a heartbeat nor
-- the process is asked: in an outage of what hears them all slots would look free. A holder silent for 10 min is none.
-- Caller: claim_trip_slot, view trip_slots. Locks: none.
create or replace function relay.holds_trip_slot(
  p_admit_mode text, p_effective relay.cell_effective_mode, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return coalesce(p_admit_mode = 'reserve' and p_effective.mode = 'db'
    and p_effective.updated_at > p_now - relay.span_of('tripSlotTtlMs'), false);
end
$$;
