-- Whether who logged in may change cells. The session's own role is asked: inside a definer function the current one
-- is the owner. Caller: operator functions, which answer `forbidden`; a raise would roll back the audit row. Locks: none.
create or replace function relay.may_operate()
returns boolean
language sql stable
as $$ select pg_has_role(session_user, 'relay_operator', 'member') $$;
