-- Whether a silence may be judged: some cell was heard in the last 20 s, and cells have been heard for 60 s since all
-- were silent. After an outage of the database nobody is judged by the silence that the outage made (V5).
-- Caller: decide_assign. Locks: none.
create or replace function relay.hearing(p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return coalesce(
    exists (select from relay.cell_runtime r where r.heard_at > p_now - relay.span_of('hearingWindowMs'))
      and p_now - (select s.hearing_since from relay.setting s) >= relay.span_of('hearingSettleMs'), false);
end
$$;
