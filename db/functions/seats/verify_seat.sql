-- Whether the row of a host names this cell and exactly this epoch; an older one and a newer one are both refused (P2).
-- Caller: cell, at a host's hello. Locks: none.
create or replace function relay_v1.verify_seat(user_id text, relay_host_id text, cell_id text, epoch bigint)
returns boolean
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
begin
  return exists (
    select from relay.assignment a
    where a.user_id = verify_seat.user_id and a.relay_host_id = verify_seat.relay_host_id
      and a.cell_id = verify_seat.cell_id and a.epoch = verify_seat.epoch);
end
$$;
comment on function relay_v1.verify_seat(text, text, text, bigint) is
  'Whether the row of a host names this cell and exactly this epoch';
