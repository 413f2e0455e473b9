-- A host confirms that a phone which resumed is the device it knows: the phone's current token lives 30 d from now.
-- Caller: a cell. `basis`: {"relay_device_id", "credential_version"} of the resume connection `basis_conn_id` that the cell
-- holds open under the same control generation and within 30 s of attach; null if there is none.
-- Locks, outcomes: apply_confirm; also stale_cell_incarnation. Idempotent per (user, host, req_id).
-- At most three attempts, as install_credential.
create or replace function relay_v1.confirm_resume(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, req_id text, basis_conn_id text, basis jsonb default null)
returns relay_v1.confirm_resume_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.confirm_resume_result;
begin
  if not relay.is_incarnation(confirm_resume.cell_id, confirm_resume.incarnation) then
    v_result.outcome := 'stale_cell_incarnation';
    return v_result;
  end if;
  for v_attempt in 1..3 loop
    begin
      return relay.apply_confirm(
        confirm_resume.user_id, confirm_resume.relay_host_id, confirm_resume.req_id, confirm_resume.basis_conn_id,
        confirm_resume.basis ->> 'relay_device_id', (confirm_resume.basis ->> 'credential_version')::bigint);
    exception when unique_violation or deadlock_detected or lock_not_available or serialization_failure then
      if v_attempt = 3 then
        raise;
      end if;
    end;
  end loop;
end
$$;
comment on function relay_v1.confirm_resume(text, text, text, uuid, text, text, jsonb) is
  'Renews the current token of a resumed device for 30 d, once per req_id; confirmed, or why not';
