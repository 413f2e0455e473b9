-- Whether a reserve cell has said, in the last 45 s and as the process that was heard last, that it admits by the database:
-- it has tripped, and is a target like any other (03, target; 91).
-- Caller: target_rejection, for a reserve cell only. Locks: none.
create or replace function relay.runs_on_database(p_cell_id text, p_incarnation uuid, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.cell_effective_mode e
    where e.cell_id = p_cell_id and e.incarnation = p_incarnation and e.mode = 'db'
      and e.updated_at > p_now - relay.span_of('heartbeatTtlMs'));
end
$$;
