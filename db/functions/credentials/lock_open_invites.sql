-- Locks the invites of a device that are not final yet, and answers their hashes. They are all that the caller may write
-- to: an invite that appears later comes after it, and would be waited for out of order.
-- Caller: create_invite, apply_install, revoke_device. Locks: these invites, in the order of token_hash.
create or replace function relay.lock_open_invites(p_user_id text, p_relay_host_id text, p_relay_device_id text)
returns text[]
language plpgsql
as $$
begin
  return array(
    select i.token_hash from relay.invite i
    where i.user_id = p_user_id and i.relay_host_id = p_relay_host_id and i.relay_device_id = p_relay_device_id
      and i.consumed_at is null and i.invalidated_at is null
    order by i.token_hash
    for update);
end
$$;
