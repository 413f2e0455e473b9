-- The rows of the view relay_v1.trip_slots. Caller: view trip_slots. Locks: none.
create or replace function relay.trip_slots_rows()
returns table (
  cell_id text, region text, admit_mode text, effective_mode text, holds_slot boolean, slots int, row_age interval,
  frees_in interval)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.region, c.admit_mode, e.mode, relay.holds_trip_slot(c.admit_mode, e, v_now),
    -- 2.0 is a whole number to the cells, too
    case when relay.is_integer_within(c.flags -> 'deadManTripSlots', 0, 64)
      then (c.flags -> 'deadManTripSlots')::numeric::int end,
    v_now - e.updated_at,
    case when relay.holds_trip_slot(c.admit_mode, e, v_now)
      then e.updated_at + relay.span_of('tripSlotTtlMs') - v_now end
  from relay.cell c
  left join relay.cell_effective_mode e on e.cell_id = c.cell_id
  where c.admit_mode = 'reserve' or e.cell_id is not null;
end
$$;
