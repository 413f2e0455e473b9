-- A phone shows a credential on a cell: all that the cell must know before it asks the host, in one call.
-- Caller: a cell. `seats`: the hosts of this id with an active control on the calling cell, [{"user_id", "epoch"}]; `conn_id`
-- is what an invite is reserved for. Locks: the invite's row; a resume locks and writes nothing.
--
-- First match wins (standing: credential_standing; place: seat_for_phone).
-- | standing       | place              | outcome                | a cell closes | reserves |
-- |----------------|--------------------|------------------------|---------------|----------|
-- |                |                    | stale_cell_incarnation | the process leaves | no  |
-- | spent          |                    | unknown_credential     | 4409          | no       |
-- | refused,usable | elsewhere          | not_here               | 4409          | no       |
-- | refused        | detached, attached | credential_refused     | 4401          | no       |
-- | usable         | detached           | host_offline           | 4404, with host_close_reason | no |
-- | usable         | attached           | opened                 |               | an invite: 15 s, one attempt |
-- An absent host costs an invite no attempt: a phone that waits for its desktop must not burn its five.
-- A reservation ends by install_credential, release_invite or time, whichever is first.
create or replace function relay_v1.open_connection(
  cell_id text, incarnation uuid, relay_host_id text, credential_hash text, conn_id text, seats jsonb)
returns relay_v1.open_connection_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.open_connection_result;
  v_device relay.device;
  v_invite relay.invite;
  v_seat record;
  v_state text;
  v_standing text;
  v_now timestamptz;
begin
  if not relay.is_incarnation(open_connection.cell_id, open_connection.incarnation) then
    v_result.outcome := 'stale_cell_incarnation';
    return v_result;
  end if;
  v_device := relay.find_device(open_connection.relay_host_id, open_connection.credential_hash);
  if v_device.user_id is null then
    select i.* into v_invite from relay.invite i
    where i.token_hash = open_connection.credential_hash and i.relay_host_id = open_connection.relay_host_id
    for update;
  end if;
  v_now := relay.now();

  if v_device.user_id is not null then
    v_result.credential_version := relay.version_shown(v_device, open_connection.credential_hash);
    v_state := relay.resume_state(v_device, v_result.credential_version, v_now);
  else
    v_state := relay.invite_state(v_invite, v_now);
  end if;
  v_standing := relay.credential_standing(v_state);
  v_result.user_id := coalesce(v_device.user_id, v_invite.user_id);
  select * into v_seat from relay.seat_for_phone(
    v_result.user_id, open_connection.relay_host_id, open_connection.cell_id, open_connection.seats, v_now);
  v_result.outcome := case
    when v_standing = 'spent' then 'unknown_credential'
    when v_seat.place = 'elsewhere' then 'not_here'
    when v_standing = 'refused' then 'credential_refused'
    when v_seat.place = 'detached' then 'host_offline'
    else 'opened'
  end;
  v_result.host_close_reason := v_seat.close_reason;
  if v_result.outcome <> 'opened' then
    return v_result;
  end if;

  v_result.epoch := v_seat.epoch;
  v_result.lease_expires_at := v_seat.lease_expires_at;
  v_result.relay_device_id := coalesce(v_device.relay_device_id, v_invite.relay_device_id);
  if v_device.user_id is not null then
    v_result.credential_kind := 'resume';
    v_result.accepted_as := v_state;
    v_result.resume_expires_at := v_device.resume_expires_at;
    v_result.grace_expires_at := relay.open_grace(v_device, v_now);
  else
    v_result.credential_kind := 'invite';
    v_result.reserved_until := relay.reserve_invite(v_invite.token_hash, open_connection.conn_id, v_now);
  end if;
  return v_result;
end
$$;
comment on function relay_v1.open_connection(text, uuid, text, text, text, jsonb) is
  'A phone shows a credential on a cell: opened, or why not; reserves an invite for 15 s';
