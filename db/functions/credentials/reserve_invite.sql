-- Gives an available invite to one phone connection, for 15 s; counts an attempt. Answers until when.
-- Caller: open_connection, which holds the invite's row. Locks: none further.
create or replace function relay.reserve_invite(p_token_hash text, p_conn_id text, p_now timestamptz)
returns timestamptz
language plpgsql
as $$
declare
  v_reserved_until constant timestamptz := p_now + relay.span_of('inviteReservationMs');
begin
  update relay.invite i
  set attempts = i.attempts + 1,
    reserved_by = p_conn_id,
    reserved_until = v_reserved_until
  where i.token_hash = p_token_hash;
  return v_reserved_until;
end
$$;
