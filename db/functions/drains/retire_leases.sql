-- Lets a host that was moved keep for a while what it holds where it was. Such a lease is not renewed, so it lasts as
-- long as the seat may: it shows whether the host has left.
-- Caller: write_move, evacuate_cell, which hold the host's row. Locks: the host's leases.
create or replace function relay.retire_leases(p_user_id text, p_relay_host_id text, p_retire_until timestamptz)
returns void
language plpgsql
as $$
begin
  update relay.lease l
  set state = 'retiring', retire_until = p_retire_until, expires_at = greatest(l.expires_at, p_retire_until)
  where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id and l.state <> 'retiring';
end
$$;
