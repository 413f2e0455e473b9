-- The only clock. Tests replace this one function, which moves every session at once.
-- Caller: every function, once, after its last lock wait. Locks: none.
create or replace function relay.now()
returns timestamptz
language sql volatile
as $$ select clock_timestamp() $$;
