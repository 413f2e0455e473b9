-- Takes the latches of two cells, ascending: of the one that hosts are moved to exclusive, since many are granted at
-- once; of the one that they leave shared. Caller: evacuate_cell, supersede_target, after the hosts' rows.
-- Locks: both latches, each ≤ 500 ms, then SQLSTATE 55P03: the hosts whose rows are held would wait as long.
create or replace function relay.latch_pair(p_from_cell text, p_to_cell text)
returns void
language plpgsql
set lock_timeout = '500ms'
as $$
declare
  v_cell record;
begin
  for v_cell in
    select c.cell_id, c.latch from relay.cell c where c.cell_id in (p_from_cell, p_to_cell) order by c.latch
  loop
    if v_cell.cell_id = p_to_cell then
      perform pg_advisory_xact_lock(relay.latch_space(), v_cell.latch);
    else
      perform pg_advisory_xact_lock_shared(relay.latch_space(), v_cell.latch);
    end if;
  end loop;
end
$$;
