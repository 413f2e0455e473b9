-- Writes what a process really does, and says so if that is new. The incarnation is looked at once more under the lock: a
-- process that was replaced while it waited must not write over its successor.
-- Caller: record_effective_mode, claim_trip_slot. Locks: the cell's own row of cell_effective_mode.
-- Outcome: whether it was written.
create or replace function relay.write_effective_mode(
  p_cell_id text, p_incarnation uuid, p_mode text, p_unleased int, p_now timestamptz)
returns boolean
language plpgsql
as $$
declare
  v_before text;
begin
  select e.mode into v_before from relay.cell_effective_mode e where e.cell_id = p_cell_id for update;
  if not relay.is_incarnation(p_cell_id, p_incarnation) then
    return false;
  end if;
  insert into relay.cell_effective_mode as e (cell_id, incarnation, mode, unleased, updated_at)
  values (p_cell_id, p_incarnation, p_mode, p_unleased, p_now)
  on conflict on constraint cell_effective_mode_pkey do update
  set incarnation = excluded.incarnation, mode = excluded.mode, unleased = excluded.unleased,
    updated_at = excluded.updated_at;
  if v_before is distinct from p_mode then
    perform relay.ring('effective_mode', p_cell_id, jsonb_build_object('from', v_before, 'to', p_mode), p_now);
  end if;
  return true;
end
$$;
