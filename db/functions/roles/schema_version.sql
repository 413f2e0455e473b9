-- The version of this interface: a process refuses to start on a database that is older or newer than it knows.
-- Caller: every process at start. Locks: none. Rises with each migration that a process must wait for.
create or replace function relay_v1.schema_version()
returns int
language sql immutable parallel safe
security definer
set search_path = relay, pg_temp
as $$ select 3 $$;
comment on function relay_v1.schema_version() is 'Version of the schema: a process starts only on the one it knows';
