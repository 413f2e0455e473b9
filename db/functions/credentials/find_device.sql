-- The device whose current or previous resume token this is, on any account of the host (one desktop may have been
-- signed in to several); all null if there is none. Should a phone have installed one token twice, the row that
-- still works wins, then the latest.
-- PL/pgSQL keeps the plan for the session; an SQL function that is not inlined plans anew in each transaction, ×5.
-- Caller: open_connection, credential_owner. Locks: none.
create or replace function relay.find_device(p_relay_host_id text, p_token_hash text)
returns relay.device
language plpgsql stable
as $$
declare
  v_device relay.device;
begin
  select d.* into v_device
  from relay.device d
  where d.relay_host_id = p_relay_host_id and (d.current_hash = p_token_hash or d.previous_hash = p_token_hash)
  order by d.revoked_at nulls first, d.current_hash = p_token_hash desc, d.installed_at desc
  limit 1;
  return v_device;
end
$$;
