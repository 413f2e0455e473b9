-- Moves the hosts of fenced cells that do not ask themselves: in random order, at most 15 % of a cell's a pass, each by
-- the table of assign as a sweep (rule 12). One director at a time sweeps a cell, so that no two wait for each other.
-- Caller: director, on a timer. Locks: an advisory lock of its own a cell, only tried; rows of hosts, skipped if locked;
-- then see assign. Outcome: hosts moved.
create or replace function relay_v1.sweep_dead_cells(max_rows int default 200)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_cell record;
  v_left int := sweep_dead_cells.max_rows;
  v_moved int;
begin
  -- without a fenced cell no host is read
  for v_cell in
    select f.cell_id, c.latch
    from relay.fence f
    join relay.cell c on c.cell_id = f.cell_id
    where relay.is_fenced(f.cell_id, v_now) and pg_try_advisory_xact_lock(relay.sweep_space(), c.latch)
    order by random()
  loop
    exit when v_left <= 0;
    v_moved := relay.sweep_dead_cell(v_cell.cell_id, v_left);
    v_left := v_left - v_moved;
  end loop;
  return sweep_dead_cells.max_rows - v_left;
end
$$;
comment on function relay_v1.sweep_dead_cells(int) is 'Moves hosts off fenced cells, at most 15 % of a cell''s; answers how many';
