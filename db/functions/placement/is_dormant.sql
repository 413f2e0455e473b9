-- Whether a host that holds no lease has shown no activity for 24 h, while silences may be judged (03, rule 2).
-- Activity is the stamp, or the end of its latest lease, expired ones too.
-- Caller: decide_assign. Locks: none.
create or replace function relay.is_dormant(
  p_user_id text, p_relay_host_id text, p_last_activity_at timestamptz, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  -- the stamp alone answers for nearly every host, so that the sticky path does not read the leases
  if p_last_activity_at > p_now - relay.span_of('dormantTtlMs') then
    return false;
  end if;
  return relay.hearing(p_now) and not exists (
    select from relay.lease l
    where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id
      and l.expires_at > p_now - relay.span_of('dormantTtlMs'));
end
$$;
