-- Frees the fleet's mutation lease if this attempt holds it. Caller: fence_commit, fence_abort, void_fence.
-- Locks: the mutation lease.
create or replace function relay.free_mutation_lease(p_attempt_id uuid)
returns void
language plpgsql
as $$
begin
  update relay.mutation_lease m
  set digest = null, attempt_id = null, expires_at = null
  where m.attempt_id = p_attempt_id;
end
$$;
