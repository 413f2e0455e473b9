-- A host takes a device's access away: its resume tokens, the one in grace too, and its open invites.
-- Caller: a cell. Locks: the device, its open invites (by token_hash).
-- | outcome                | when                                                                              |
-- |------------------------|-----------------------------------------------------------------------------------|
-- | stale_cell_incarnation | the caller is not the cell's process of now                                       |
-- | revoked                | the device was known, or had an open invite; also if it was revoked before        |
-- | credential_not_found   | otherwise                                                                         |
-- A later install brings the device back, with a new token alone. A first install that is under way commits before or
-- after: two orders, no mixture.
create or replace function relay_v1.revoke_device(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, relay_device_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz;
  v_known boolean;
  v_invites text[];
begin
  if not relay.is_incarnation(revoke_device.cell_id, revoke_device.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  perform 1 from relay.device d
  where d.user_id = revoke_device.user_id and d.relay_host_id = revoke_device.relay_host_id
    and d.relay_device_id = revoke_device.relay_device_id
  for update;
  v_known := found;
  v_invites := relay.lock_open_invites(
    revoke_device.user_id, revoke_device.relay_host_id, revoke_device.relay_device_id);
  v_now := relay.now();
  update relay.device d set revoked_at = v_now
  where d.user_id = revoke_device.user_id and d.relay_host_id = revoke_device.relay_host_id
    and d.relay_device_id = revoke_device.relay_device_id and d.revoked_at is null;
  perform relay.invalidate_invites(v_invites, v_now);
  if v_known or cardinality(v_invites) > 0 then
    return 'revoked';
  end if;
  return 'credential_not_found';
end
$$;
comment on function relay_v1.revoke_device(text, text, text, uuid, text) is
  'Ends the resume tokens and invites of a device; revoked, credential_not_found or stale_cell_incarnation';
