-- First key of the advisory locks on cells; the second is cell.latch. Caller: every function that grants or changes a cell.
create or replace function relay.latch_space()
returns int
language sql immutable parallel safe
as $$ select 1330790241 $$;
