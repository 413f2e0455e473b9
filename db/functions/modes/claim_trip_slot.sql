-- A reserve cell that has heard from no director asks whether it may run on the database: at most `slots` cells do at
-- once (P7). Never waits. The cell's own row does not count, so a claim may be sent again after a lost reply.
-- Caller: cell, while HELD every 30 s. Locks: the claims' advisory lock, tried; its own row of cell_effective_mode.
-- Outcomes: granted (its row says db now), full, busy (another claim is under way, or nobody can be judged yet after an
-- outage), stale_cell_incarnation.
create or replace function relay_v1.claim_trip_slot(cell_id text, incarnation uuid, slots int)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz;
begin
  if claim_trip_slot.slots between 0 and 64 is not true then
    perform relay.misuse('claim_trip_slot: slots is 0 to 64');
  elsif not relay.is_incarnation(claim_trip_slot.cell_id, claim_trip_slot.incarnation) then
    return 'stale_cell_incarnation';
  elsif not pg_try_advisory_xact_lock(relay.trip_space()) then
    return 'busy';
  end if;
  v_now := relay.now();
  if not relay.hearing(v_now) then
    return 'busy';
  elsif claim_trip_slot.slots <= (
    select count(*)
    from relay.cell_effective_mode e
    join relay.cell c on c.cell_id = e.cell_id
    where e.cell_id <> claim_trip_slot.cell_id and relay.holds_trip_slot(c.admit_mode, e, v_now)) then
    return 'full';
  end if;
  return case
    when relay.write_effective_mode(claim_trip_slot.cell_id, claim_trip_slot.incarnation, 'db', null, v_now) then 'granted'
    else 'stale_cell_incarnation'
  end;
end
$$;
comment on function relay_v1.claim_trip_slot(text, uuid, int) is
  'Asks for one of so many trip slots: granted, full, busy or stale_cell_incarnation';
