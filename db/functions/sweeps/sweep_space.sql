-- First key of the advisory locks under which fenced cells are swept; the second is cell.latch. Apart from the latches,
-- which hosts wait for. Caller: sweep_dead_cells.
create or replace function relay.sweep_space()
returns int
language sql immutable parallel safe
as $$ select 1330790242 $$;
