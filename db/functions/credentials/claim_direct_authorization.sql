-- May this direct authorization vouch for an install of this device now? Records it when seen for the first time, with a
-- deadline of 30 s, so that an install refused for another reason can be tried again within them.
-- Caller: apply_install, which marks it used; p_known is its row, locked, null if there is none. Two first sights at once
-- meet here, and the later one gets a unique violation. Locks: none further.
-- | answer | when                                                              |
-- |--------|-------------------------------------------------------------------|
-- | false  | no id; or another device's; or used; or recorded 30 s ago or more |
-- | true   | otherwise                                                         |
create or replace function relay.claim_direct_authorization(
  p_known relay.direct_authorization, p_user_id text, p_relay_host_id text, p_relay_device_id text, p_direct_auth_id text,
  p_now timestamptz)
returns boolean
language plpgsql
as $$
begin
  if p_direct_auth_id is null then
    return false;
  elsif p_known.direct_auth_id is null then
    insert into relay.direct_authorization (user_id, relay_host_id, direct_auth_id, relay_device_id, recorded_at, expires_at)
    values (p_user_id, p_relay_host_id, p_direct_auth_id, p_relay_device_id, p_now,
      p_now + relay.span_of('directAuthorizationMs'));
    return true;
  end if;
  return p_known.relay_device_id = p_relay_device_id and p_known.used_at is null and p_now < p_known.expires_at;
end
$$;
