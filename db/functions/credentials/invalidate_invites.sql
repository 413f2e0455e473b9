-- Ends invites, reserved ones too: the phone that holds one can no longer install.
-- Caller: create_invite, apply_install (authenticated-direct), revoke_device, with what lock_open_invites answered.
-- Locks: none further.
create or replace function relay.invalidate_invites(p_token_hashes text[], p_now timestamptz)
returns void
language plpgsql
as $$
begin
  update relay.invite i set invalidated_at = p_now where i.token_hash = any(p_token_hashes);
end
$$;
