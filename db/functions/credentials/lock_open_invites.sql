-- Locks the invites of a device that are not final yet, in the order of token_hash so that no two callers deadlock.
-- Caller: create_invite, apply_install, revoke_device. Locks: these invites.
create or replace function relay.lock_open_invites(p_user_id text, p_relay_host_id text, p_relay_device_id text)
returns void
language plpgsql
as $$
begin
  perform 1 from relay.invite i
  where i.user_id = p_user_id and i.relay_host_id = p_relay_host_id and i.relay_device_id = p_relay_device_id
    and i.consumed_at is null and i.invalidated_at is null
  order by i.token_hash
  for update;
end
$$;
