-- The phone connection that an invite was reserved for ended without an install: the attempt failed.
-- Caller: a cell. Locks: the invite's row.
-- | outcome                | when                                                                             |
-- |------------------------|----------------------------------------------------------------------------------|
-- | stale_cell_incarnation | the caller is not the cell's process of now; the reservation times out by itself |
-- | not_reserved           | it is not, or no longer, reserved for this connection: nothing changes           |
-- | cooldown               | usable again after 2 s                                                           |
-- | invalidated            | that was the fifth attempt                                                       |
create or replace function relay_v1.release_invite(
  cell_id text, incarnation uuid, relay_host_id text, token_hash text, conn_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_invite relay.invite;
  v_now timestamptz;
begin
  if not relay.is_incarnation(release_invite.cell_id, release_invite.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  select i.* into v_invite from relay.invite i
  where i.token_hash = release_invite.token_hash and i.relay_host_id = release_invite.relay_host_id
  for update;
  v_now := relay.now();
  if v_invite.reserved_by is distinct from release_invite.conn_id
    or relay.invite_state(v_invite, v_now) is distinct from 'reserved' then
    return 'not_reserved';
  end if;
  update relay.invite i set reserved_until = v_now where i.token_hash = v_invite.token_hash;
  if v_invite.attempts >= relay.limit_of('inviteMaxAttempts') then
    return 'invalidated';
  end if;
  return 'cooldown';
end
$$;
comment on function relay_v1.release_invite(text, uuid, text, text, text) is
  'The connection an invite was reserved for ended unused: cooldown, invalidated, not_reserved or stale_cell_incarnation';
