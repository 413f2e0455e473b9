-- The account whose credential this is, or null if it is nobody's, spent or expired. For an invite a reservation or a
-- cooldown is no obstacle: only its cell judges those, and the director reserves nothing.
-- Caller: resolve. Locks: none.
create or replace function relay.credential_owner(
  p_relay_host_id text, p_token_hash text, p_kind text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_device relay.device;
  v_invite relay.invite;
begin
  if p_kind = 'resume' then
    v_device := relay.find_device(p_relay_host_id, p_token_hash);
    if relay.resume_state(v_device, relay.version_shown(v_device, p_token_hash), p_now) in ('current', 'grace') then
      return v_device.user_id;
    end if;
    return null;
  end if;
  select i.* into v_invite from relay.invite i
  where i.token_hash = p_token_hash and i.relay_host_id = p_relay_host_id;
  if relay.invite_state(v_invite, p_now) in ('available', 'reserved', 'cooldown') then
    return v_invite.user_id;
  end if;
  return null;
end
$$;
