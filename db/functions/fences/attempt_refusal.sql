-- Why an attempt in this state takes no further step, or null if it may.
-- Caller: fence_start, fence_commit, fence_abort. Locks: none.
create or replace function relay.attempt_refusal(p_state text)
returns text
language sql immutable
as $$
  select case
    when p_state is null then 'cell_fence_attempt_not_found'
    when p_state in ('aborted', 'expired', 'superseded') then 'cell_fence_attempt_' || p_state
  end
$$;
