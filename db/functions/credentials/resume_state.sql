-- What one version of a device's resume token is at one moment. The device row holds the current version and the one
-- before it; older hashes are forgotten.
-- Caller: open_connection, confirm_resume, credential_owner. Locks: none.
--
-- First match wins.
-- | state   | when                                             | opens a connection | confirm_resume answers     |
-- |---------|--------------------------------------------------|--------------------|----------------------------|
-- | revoked | the device is revoked                            | no, spent          | reject-revoked             |
-- | expired | current version, 30 d since install or renewal   | no, refused        | reject-expired             |
-- | current | current version                                  | yes                | renewed for 30 d           |
-- | grace   | the version before, < 24 h after its replacement | yes                | confirmed, nothing changes |
-- | retired | any other version, or no such device             | no, spent          | reject-retired             |
create or replace function relay.resume_state(p_device relay.device, p_version bigint, p_now timestamptz)
returns text
language sql immutable parallel safe
as $$
  select case
    when p_device.revoked_at is not null then 'revoked'
    when p_version = p_device.version and p_now >= p_device.resume_expires_at then 'expired'
    when p_version = p_device.version then 'current'
    when p_version = p_device.version - 1 and p_now < p_device.grace_expires_at then 'grace'
    else 'retired'
  end
$$;
