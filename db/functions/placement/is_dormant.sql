-- Whether a host has shown no activity for 24 h, while silences may be judged (03, rule 2). Activity is the stamp, which
-- the caller has looked at since it answers for nearly every host, or the end of its latest lease, expired ones too.
-- Caller: decide_assign. Locks: none.
create or replace function relay.is_dormant(p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return relay.is_judged(p_home, p_now) and not exists (
    select from relay.lease l
    where l.user_id = p_ask.user_id and l.relay_host_id = p_ask.relay_host_id
      and l.expires_at > p_now - relay.span_of('dormantTtlMs'));
end
$$;
