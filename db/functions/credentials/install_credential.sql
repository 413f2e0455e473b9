-- A host vouches for a device's new resume token: by a live invite connection (relay-basis), or because it authenticated
-- the device itself (authenticated-direct).
-- Caller: a cell. `basis`: {"conn_id", "token_hash"} of the invite connection that the cell holds open under the same control
-- generation, null if it holds none. Locks: apply_install. Outcomes: apply_install.
-- Idempotent per (user, host, device, req_id): a committed install answers the same for ever after, whatever else the
-- replay says. Every refusal leaves install_status `not_found`, and the same req_id may try again.
-- A race that only one can win (a device's first install, a direct authorization's first sight) shows as a unique violation
-- to the other, which then finds the winner's result: at most three attempts, then the error goes to the caller, who may
-- repeat the same req_id.
create or replace function relay_v1.install_credential(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, req_id text, relay_device_id text,
  new_token_hash text, authorization_mode text, expected_current_hash text default null, basis jsonb default null,
  direct_auth_id text default null)
returns relay_v1.install_credential_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.install_credential_result;
begin
  if not relay.is_incarnation(install_credential.cell_id, install_credential.incarnation) then
    v_result.outcome := 'stale_cell_incarnation';
    return v_result;
  end if;
  if install_credential.authorization_mode not in ('relay-basis', 'authenticated-direct') then
    perform relay.misuse('authorization_mode is relay-basis or authenticated-direct');
  end if;
  for v_attempt in 1..3 loop
    begin
      return relay.apply_install(
        install_credential.user_id, install_credential.relay_host_id, install_credential.relay_device_id,
        install_credential.req_id, install_credential.new_token_hash, install_credential.expected_current_hash,
        install_credential.authorization_mode, install_credential.basis, install_credential.direct_auth_id);
    exception when unique_violation or deadlock_detected or lock_not_available or serialization_failure then
      if v_attempt = 3 then
        raise;
      end if;
    end;
  end loop;
end
$$;
comment on function relay_v1.install_credential(text, text, text, uuid, text, text, text, text, text, jsonb, text) is
  'Makes a token the current one of a device, once per req_id; committed, or why not';
