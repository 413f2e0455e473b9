-- One attempt of confirm_resume: lock, look, decide, write.
-- Caller: confirm_resume. Locks: the device.
--
-- First match wins; everything is looked at after the lock. p_relay_device_id and p_version are null without a basis.
-- | outcome                       | when                                                      | writes                      |
-- |-------------------------------|-----------------------------------------------------------|-----------------------------|
-- | confirmation_tuple_mismatch   | this req_id was confirmed for another connection or token | nothing                     |
-- | confirmed (replay)            | this req_id was confirmed for this connection             | nothing: its first result   |
-- | confirmation_not_active       | no basis                                                  | nothing                     |
-- | credential_not_found          | no such device                                            | nothing                     |
-- | reject-revoked, -expired, -retired | resume_state                                         | nothing                     |
-- | confirmed, renewed            | the version is the current one                            | 30 d from now, the result   |
-- | confirmed, not renewed        | the version is in grace                                   | the result                  |
create or replace function relay.apply_confirm(
  p_user_id text, p_relay_host_id text, p_req_id text, p_basis_conn_id text, p_relay_device_id text, p_version bigint)
returns relay_v1.confirm_resume_result
language plpgsql
as $$
declare
  v_result relay_v1.confirm_resume_result;
  v_device relay.device;
  v_first relay.confirm_result;
  v_state text;
  v_now timestamptz;
begin
  select d.* into v_device from relay.device d
  where d.user_id = p_user_id and d.relay_host_id = p_relay_host_id and d.relay_device_id = p_relay_device_id
  for update;
  v_now := relay.now();
  select r.* into v_first from relay.confirm_result r
  where r.user_id = p_user_id and r.relay_host_id = p_relay_host_id and r.req_id = p_req_id;
  v_state := relay.resume_state(v_device, p_version, v_now);
  v_result.outcome := case
    when v_first.basis_conn_id <> p_basis_conn_id
      or v_first.relay_device_id <> p_relay_device_id
      or v_first.basis_version <> p_version then 'confirmation_tuple_mismatch'
    when v_first.req_id is not null then 'confirmed'
    when p_relay_device_id is null then 'confirmation_not_active'
    when v_device.user_id is null then 'credential_not_found'
    when v_state in ('current', 'grace') then 'confirmed'
    else 'reject-' || v_state
  end;
  if v_result.outcome <> 'confirmed' then
    return v_result;
  end if;

  if v_first.req_id is null then
    if v_state = 'current' then
      v_device.resume_expires_at := v_now + relay.span_of('resumeTtlMs');
      update relay.device d set resume_expires_at = v_device.resume_expires_at
      where d.user_id = p_user_id and d.relay_host_id = p_relay_host_id and d.relay_device_id = p_relay_device_id;
    end if;
    insert into relay.confirm_result (user_id, relay_host_id, req_id, basis_conn_id, relay_device_id, basis_version,
      current_version, accepted_as, resume_expires_at, grace_expires_at, confirmed_at)
    values (p_user_id, p_relay_host_id, p_req_id, p_basis_conn_id, p_relay_device_id, p_version,
      v_device.version, v_state, v_device.resume_expires_at, relay.open_grace(v_device, v_now), v_now)
    returning * into v_first;
  end if;
  v_result.current_version := v_first.current_version;
  v_result.accepted_as := v_first.accepted_as;
  v_result.renewed := v_first.accepted_as = 'current';
  v_result.resume_expires_at := v_first.resume_expires_at;
  v_result.grace_expires_at := v_first.grace_expires_at;
  return v_result;
end
$$;
