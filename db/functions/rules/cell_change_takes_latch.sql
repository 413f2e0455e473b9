-- Takes the latch of a cell that is being changed, so that a grant which has read the old row is committed first and
-- one that waits reads the new row. A function that changes a cell holds it already; this is for statements by hand.
-- Caller: trigger on update and delete. Locks: the row of the cell (Postgres, before), then its latch, exclusive.
create or replace function relay.cell_change_takes_latch()
returns trigger
language plpgsql
set search_path = relay, pg_temp
as $$
begin
  perform pg_advisory_xact_lock(relay.latch_space(), old.latch);
  return case tg_op when 'DELETE' then old else new end;
end
$$;
