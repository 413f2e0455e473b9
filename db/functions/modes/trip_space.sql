-- The advisory lock under which trip slots are claimed, one claim at a time in the whole fleet. One key: apart from the
-- latches, which have two. Caller: claim_trip_slot.
create or replace function relay.trip_space()
returns bigint
language sql immutable parallel safe
as $$ select 1330790243::bigint $$;
