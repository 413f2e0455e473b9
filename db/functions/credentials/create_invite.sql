-- A host offers a device to pair with: a new invite, in place of all earlier ones of this device.
-- Caller: a cell, which made the token and passes its hash. Locks: the account's rate window, then the device's open invites.
-- | outcome                | when                                                          |
-- |------------------------|---------------------------------------------------------------|
-- | stale_cell_incarnation | the caller is not the cell's process of now                   |
-- | rate_limit_exceeded    | the account made 30 invites in the last minute's fixed window |
-- | created                | usable until expires_at, in max_attempts attempts             |
-- The rate window's row also makes the invites of one account follow each other: two new ones cannot both survive.
create or replace function relay_v1.create_invite(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, relay_device_id text, token_hash text)
returns relay_v1.create_invite_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.create_invite_result;
  v_earlier text[];
  v_now timestamptz;
begin
  if not relay.is_incarnation(create_invite.cell_id, create_invite.incarnation) then
    v_result.outcome := 'stale_cell_incarnation';
    return v_result;
  end if;
  if not relay.take_from_rate_window(
    create_invite.user_id, 'invite-create', relay.limit_of('invitesPerAccountPerMinute')::int, interval '1 minute') then
    v_result.outcome := 'rate_limit_exceeded';
    return v_result;
  end if;
  v_earlier := relay.lock_open_invites(
    create_invite.user_id, create_invite.relay_host_id, create_invite.relay_device_id);
  v_now := relay.now();
  perform relay.invalidate_invites(v_earlier, v_now);
  v_result.outcome := 'created';
  v_result.expires_at := v_now + relay.span_of('inviteTtlMs') - relay.span_of('inviteSkewMs');
  v_result.max_attempts := relay.limit_of('inviteMaxAttempts');
  insert into relay.invite (token_hash, user_id, relay_host_id, relay_device_id, created_at, expires_at)
  values (create_invite.token_hash, create_invite.user_id, create_invite.relay_host_id, create_invite.relay_device_id,
    v_now, v_result.expires_at);
  return v_result;
end
$$;
comment on function relay_v1.create_invite(text, text, text, uuid, text, text) is
  'A new invite for a device, in place of its earlier ones; created, rate_limit_exceeded or stale_cell_incarnation';
