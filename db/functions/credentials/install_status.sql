-- Did this install commit? Answers what install_credential answered, also long after the control that asked is gone.
-- Caller: a cell. Locks: none. Outcomes: committed, not_found (never asked, refused, or failed: the same req_id may try again).
create or replace function relay_v1.install_status(
  user_id text, relay_host_id text, relay_device_id text, req_id text)
returns relay_v1.install_credential_result
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
begin
  return relay.committed_install(
    install_status.user_id, install_status.relay_host_id, install_status.relay_device_id, install_status.req_id);
end
$$;
comment on function relay_v1.install_status(text, text, text, text) is
  'What install_credential answered for this req_id if it committed, else not_found';
