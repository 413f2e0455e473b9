-- Records the seat of a host that has no row yet. Another session may be making the row: an insert waits for that one's
-- commit and cannot skip it, so it is waited for briefly and the host passed over.
-- Caller: record_seats. Locks: see record_seat; each waited for ≤ 100 ms. Outcome: false if the row was not had in time.
create or replace function relay.record_first_seat(
  p_user_id text, p_relay_host_id text, p_cell_id text, p_epoch bigint, p_now timestamptz)
returns boolean
language plpgsql
set lock_timeout = '100ms'
as $$
begin
  perform relay.record_seat(p_user_id, p_relay_host_id, p_cell_id, p_epoch, p_now);
  return true;
exception
  when lock_not_available then
    return false;
end
$$;
