-- Locks a fence attempt for its next step: the cell, its latch and its runtime row first, in the order of fence_begin.
-- Caller: fence_start, fence_commit, fence_abort. Locks: the cell, its latch (exclusive), its runtime row, the attempt.
-- Outcome: the attempt, all null if there is none.
create or replace function relay.lock_attempt(p_attempt_id uuid)
returns relay.fence_attempt
language plpgsql
as $$
declare
  v_attempt relay.fence_attempt;
begin
  select t.* into v_attempt from relay.fence_attempt t where t.attempt_id = p_attempt_id;
  perform relay.lock_cell(v_attempt.cell_id);
  perform from relay.cell_runtime r where r.cell_id = v_attempt.cell_id for update;
  select t.* into v_attempt from relay.fence_attempt t where t.attempt_id = p_attempt_id for update;
  return v_attempt;
end
$$;
