-- Raises a misuse: a mistake of the calling program, never an answer to a host. SQLSTATE RL001.
-- Caller: public functions on a bad argument or a wrong isolation level. Locks: none.
create or replace function relay.misuse(p_message text)
returns void
language plpgsql
as $$
begin
  raise exception using errcode = 'RL001', message = p_message;
end
$$;
