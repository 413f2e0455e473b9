-- Records how a cell admits hosts. To reserve: record it here first, then set the flag. Back to db: the flag first, and
-- here once the process says that every host has its lease (view trip_slots, effective_mode).
-- Caller: operator. Locks: the cell, its latch (exclusive): a move off a dead reserve cell (rule 13) that holds the latch
-- is committed first, and one that waits reads the new mode.
-- Outcomes: ok, forbidden, cell_not_found, cell_has_open_migration, cell_has_open_drain, cell_flags_admit_reserve,
-- cell_admits_reserve. With a warning while no director that places by booking polls the cell: nobody would be booked there,
-- and it would trip.
create or replace function relay_v1.set_admit_mode(cell_id text, mode text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(set_admit_mode.cell_id, set_admit_mode.mode);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if set_admit_mode.mode in ('db', 'reserve') is not true then
    perform relay.misuse('set_admit_mode: mode is db or reserve');
  elsif not relay.may_operate() then
    return relay.audit('set_admit_mode', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(set_admit_mode.cell_id);
  v_now := relay.now();
  v_refusal := relay.admit_mode_refusal(v_cell, set_admit_mode.mode, v_now);
  if v_refusal is not null then
    return relay.audit('set_admit_mode', v_arguments, v_refusal);
  end if;
  if set_admit_mode.mode = 'reserve' and not relay.is_polled(v_cell.cell_id, v_now) then
    raise warning 'no director with reserve placement on polls cell %: nobody is booked there, and it falls back to db',
      v_cell.cell_id;
  end if;
  if v_cell.admit_mode <> set_admit_mode.mode then
    update relay.cell c set admit_mode = set_admit_mode.mode where c.cell_id = v_cell.cell_id;
    perform relay.ring('mode', v_cell.cell_id,
      jsonb_build_object('from', v_cell.admit_mode, 'to', set_admit_mode.mode), v_now);
  end if;
  return relay.audit('set_admit_mode', v_arguments, 'ok');
end
$$;
comment on function relay_v1.set_admit_mode(text, text) is
  'Records whether a cell admits by the database (db) or from bookings and memory (reserve). ok, or why not';
