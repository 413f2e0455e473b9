-- Whether the director's polls say that this home is dead, judged at most 5 s ago (03, dead, 6). The instant is one that
-- this clock gave the director, so no two clocks are compared; one from the future is no evidence.
-- Caller: decide_assign (rule 13). Locks: none.
create or replace function relay.polls_say_dead(p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns boolean
language plpgsql immutable
as $$
begin
  return coalesce(p_ask.dead_cell_id = p_home.cell_id
    and p_ask.dead_at between p_now - relay.span_of('pollEvidenceTtlMs') and p_now, false);
end
$$;
