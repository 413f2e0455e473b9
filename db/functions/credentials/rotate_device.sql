-- Makes a token hash the device's current one and answers the new row: apply_install says what becomes of the old one.
-- Caller: apply_install, which holds the device's row. `p_device` is that row, null if the device is new: two first
-- installs at once meet here, and the later one gets a unique violation.
-- Locks: none further.
create or replace function relay.rotate_device(
  p_device relay.device, p_user_id text, p_relay_host_id text, p_relay_device_id text, p_new_hash text, p_now timestamptz)
returns relay.device
language plpgsql
as $$
declare
  v_device relay.device;
  v_keeps_grace boolean := p_device.revoked_at is null and p_now < p_device.resume_expires_at;
begin
  if p_device.user_id is null then
    insert into relay.device as d (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at,
      installed_at)
    values (p_user_id, p_relay_host_id, p_relay_device_id, p_new_hash, 1, p_now + relay.span_of('resumeTtlMs'), p_now)
    returning d.* into v_device;
    return v_device;
  end if;
  update relay.device d
  set version = d.version + 1,
    current_hash = p_new_hash,
    previous_hash = case when v_keeps_grace then d.current_hash end,
    grace_expires_at = case when v_keeps_grace then p_now + relay.span_of('credentialGraceMs') end,
    resume_expires_at = p_now + relay.span_of('resumeTtlMs'),
    revoked_at = null,
    installed_at = p_now
  where d.user_id = p_user_id and d.relay_host_id = p_relay_host_id and d.relay_device_id = p_relay_device_id
  returning d.* into v_device;
  return v_device;
end
$$;
