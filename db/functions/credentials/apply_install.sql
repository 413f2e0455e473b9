-- One attempt of install_credential: lock, look, decide, write.
-- Caller: install_credential. Locks: the device, its open invites (by token_hash), the direct authorization.
--
-- First match wins; everything is looked at after the locks.
-- | outcome                      | when                                                                               |
-- |------------------------------|------------------------------------------------------------------------------------|
-- | committed (replay)           | this req_id of this device is committed: its first result, nothing written         |
-- | invalid_relay_basis          | relay-basis, and no invite of this device is reserved for that connection now      |
-- | invalid_direct_authorization | authenticated-direct, and claim_direct_authorization refuses                       |
-- | current_hash_mismatch        | an expected hash was given and is not the device's current one (or has no device)  |
-- | committed                    | otherwise                                                                          |
-- Committed writes: version + 1 (1 for a new device), 30 d, the replaced token 24 h of grace, revoked cleared. A token
-- that was revoked or had expired gets no grace: it would come back to life. relay-basis consumes its invite,
-- authenticated-direct invalidates all open ones.
create or replace function relay.apply_install(
  p_user_id text, p_relay_host_id text, p_relay_device_id text, p_req_id text, p_new_hash text, p_expected_hash text,
  p_mode text, p_basis jsonb, p_direct_auth_id text)
returns relay_v1.install_credential_result
language plpgsql
as $$
declare
  v_result relay_v1.install_credential_result;
  v_device relay.device;
  v_invite relay.invite;
  v_direct relay.direct_authorization;
  v_open text[];
  v_now timestamptz;
begin
  select d.* into v_device from relay.device d
  where d.user_id = p_user_id and d.relay_host_id = p_relay_host_id and d.relay_device_id = p_relay_device_id
  for update;
  v_open := relay.lock_open_invites(p_user_id, p_relay_host_id, p_relay_device_id);
  select a.* into v_direct from relay.direct_authorization a
  where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id and a.direct_auth_id = p_direct_auth_id
  for update;
  v_now := relay.now();

  v_result := relay.committed_install(p_user_id, p_relay_host_id, p_relay_device_id, p_req_id);
  if v_result.outcome = 'committed' then
    return v_result;
  end if;
  v_result := null;
  if p_mode = 'relay-basis' then
    select i.* into v_invite from relay.invite i
    where i.token_hash = p_basis ->> 'token_hash' and i.token_hash = any(v_open)
      and i.reserved_by = p_basis ->> 'conn_id';
    if relay.invite_state(v_invite, v_now) is distinct from 'reserved' then
      v_result.outcome := 'invalid_relay_basis';
      return v_result;
    end if;
  elsif not relay.claim_direct_authorization(
    v_direct, p_user_id, p_relay_host_id, p_relay_device_id, p_direct_auth_id, v_now) then
    v_result.outcome := 'invalid_direct_authorization';
    return v_result;
  end if;
  if p_expected_hash <> coalesce(v_device.current_hash, '') then
    v_result.outcome := 'current_hash_mismatch';
    return v_result;
  end if;

  v_device := relay.rotate_device(v_device, p_user_id, p_relay_host_id, p_relay_device_id, p_new_hash, v_now);
  if p_mode = 'relay-basis' then
    update relay.invite i set consumed_at = v_now where i.token_hash = v_invite.token_hash;
  else
    update relay.direct_authorization a set used_at = v_now
    where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id and a.direct_auth_id = p_direct_auth_id;
    perform relay.invalidate_invites(v_open, v_now);
  end if;
  insert into relay.install_result (user_id, relay_host_id, relay_device_id, req_id, authorization_mode,
    current_version, resume_expires_at, grace_expires_at, committed_at)
  values (p_user_id, p_relay_host_id, p_relay_device_id, p_req_id, p_mode,
    v_device.version, v_device.resume_expires_at, v_device.grace_expires_at, v_now);
  return relay.committed_install(p_user_id, p_relay_host_id, p_relay_device_id, p_req_id);
end
$$;
