-- Whether a host has an open migration, pinned or not: the roll rules leave it alone. Caller: decide_assign (rules 4 and
-- 10). Locks: none.
create or replace function relay.is_migrating(p_user_id text, p_relay_host_id text)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.migration m
    where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.completed_at is null and m.aborted_at is null);
end
$$;
