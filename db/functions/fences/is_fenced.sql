-- Whether a committed fence proves that the last process of a cell is gone (03, fences): the attempt is complete, the
-- cell existing-only, the process the one of the last heartbeat, the commit not before that heartbeat, and not expired.
-- Caller: decide_assign (rule 12), sweeps, supersede_target. Locks: none.
create or replace function relay.is_fenced(p_cell_id text, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.fence f
    join relay.fence_attempt t on t.attempt_id = f.attempt_id and t.completed_at is not null and t.closed_at is null
    join relay.cell c on c.cell_id = f.cell_id and c.admission = 'existing-only'
    join relay.cell_runtime r on r.cell_id = f.cell_id and r.incarnation = f.incarnation and r.heard_at <= f.committed_at
    where f.cell_id = p_cell_id and f.expires_at > p_now);
end
$$;
