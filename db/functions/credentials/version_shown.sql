-- Which version of a device's resume token has this hash; null if neither of the two that the row knows.
-- Caller: open_connection, credential_owner. Locks: none.
create or replace function relay.version_shown(p_device relay.device, p_token_hash text)
returns bigint
language sql immutable parallel safe
as $$
  select case p_token_hash
    when p_device.current_hash then p_device.version
    when p_device.previous_hash then p_device.version - 1
  end
$$;
