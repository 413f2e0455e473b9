-- What a state of an invite or of a resume token means to a phone that shows it.
-- Caller: open_connection, credential_owner. Locks: none.
-- | standing | states                     | a cell closes | why                                                          |
-- |----------|----------------------------|---------------|--------------------------------------------------------------|
-- | usable   | available, current, grace  |               |                                                              |
-- | refused  | reserved, cooldown, expired| 4401          | it is this host's; a look-up at the director changes nothing |
-- | spent    | consumed, invalidated, revoked, retired, unknown | 4409 | the director has the last word: 401, or `invalid invite` |
create or replace function relay.credential_standing(p_state text)
returns text
language sql immutable parallel safe
as $$
  select case
    when p_state in ('available', 'current', 'grace') then 'usable'
    when p_state in ('reserved', 'cooldown', 'expired') then 'refused'
    else 'spent'
  end
$$;
