-- Brings the row of a host to the seat that the director knows (03, `seen`), before what was decided on it is written.
-- Caller: assign. Locks: the host's row, ≤ 500 ms; see record_seat. Outcome: false if the row was not had in time.
create or replace function relay.record_seen(p_ask relay.ask)
returns boolean
language plpgsql
set lock_timeout = '500ms'
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform relay.misuse('assign needs isolation level read committed');
  end if;
  perform from relay.assignment a
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id
  for no key update;
  perform relay.record_seat(p_ask.user_id, p_ask.relay_host_id, p_ask.seen_cell_id, p_ask.seen_epoch, relay.now());
  return true;
exception
  when lock_not_available or deadlock_detected then
    return false;
end
$$;
