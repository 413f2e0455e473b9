-- What an invite is at one moment: computed from its row, never stored, so that a time-out needs nobody to write it.
-- Caller: open_connection, release_invite, install_credential, credential_owner. Locks: none.
--
-- First match wins. A reservation ends by itself (reserved_until passes) or by release_invite (reserved_until = then).
-- | state       | when                                                | opens a connection | event -> next state                              |
-- |-------------|-----------------------------------------------------|--------------------|--------------------------------------------------|
-- | consumed    | an install used it                                  | no, spent          | final                                            |
-- | invalidated | a newer invite, a direct install or a revoke did it | no, spent          | final                                            |
-- | reserved    | now < reserved_until                                | no, refused        | install -> consumed; release, time-out -> below  |
-- | invalidated | the last attempt ended unused                       | no, spent          | final                                            |
-- | expired     | now >= expires_at                                   | no, refused        | final                                            |
-- | cooldown    | now < reserved_until + 2 s                          | no, refused        | time -> available                                |
-- | available   | otherwise                                           | yes                | open_connection -> reserved, attempts + 1        |
-- | (null)      | no such invite                                      | no, spent          |                                                  |
-- A reservation outlives expires_at: who began in time may finish. A newer invite, a direct install and a revoke
-- invalidate every state that is not final.
create or replace function relay.invite_state(p_invite relay.invite, p_now timestamptz)
returns text
language sql stable parallel safe
as $$
  select case
    when p_invite.consumed_at is not null then 'consumed'
    when p_invite.invalidated_at is not null then 'invalidated'
    when p_now < p_invite.reserved_until then 'reserved'
    when p_invite.attempts >= relay.limit_of('inviteMaxAttempts') then 'invalidated'
    when p_now >= p_invite.expires_at then 'expired'
    when p_now < p_invite.reserved_until + relay.span_of('inviteCooldownMs') then 'cooldown'
    when p_now < p_invite.expires_at then 'available'
  end
$$;
