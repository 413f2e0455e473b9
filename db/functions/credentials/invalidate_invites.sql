-- Ends every invite of a device that is not final yet, a reserved one too: the phone that holds it can no longer install.
-- Answers whether there was one.
-- Caller: create_invite, apply_install (authenticated-direct), revoke_device, after lock_open_invites. Locks: none further.
create or replace function relay.invalidate_invites(
  p_user_id text, p_relay_host_id text, p_relay_device_id text, p_now timestamptz)
returns boolean
language plpgsql
as $$
begin
  update relay.invite i set invalidated_at = p_now
  where i.user_id = p_user_id and i.relay_host_id = p_relay_host_id and i.relay_device_id = p_relay_device_id
    and i.consumed_at is null and i.invalidated_at is null;
  return found;
end
$$;
