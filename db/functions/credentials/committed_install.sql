-- The result of a committed install, or outcome `not_found`.
-- Caller: install_status, apply_install. Locks: none.
create or replace function relay.committed_install(
  p_user_id text, p_relay_host_id text, p_relay_device_id text, p_req_id text)
returns relay_v1.install_credential_result
language plpgsql stable
as $$
declare
  v_result relay_v1.install_credential_result;
begin
  select 'committed', r.authorization_mode, r.current_version, r.resume_expires_at, r.grace_expires_at into v_result
  from relay.install_result r
  where r.user_id = p_user_id and r.relay_host_id = p_relay_host_id and r.relay_device_id = p_relay_device_id
    and r.req_id = p_req_id;
  v_result.outcome := coalesce(v_result.outcome, 'not_found');
  return v_result;
end
$$;
