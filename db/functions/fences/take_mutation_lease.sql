-- Takes the fleet's mutation lease for an attempt, or holds it 35 min longer if it has it; false while another's.
-- Caller: fence_begin, fence_start. Locks: the mutation lease.
create or replace function relay.take_mutation_lease(p_attempt_id uuid, p_digest text, p_now timestamptz)
returns boolean
language plpgsql
as $$
begin
  update relay.mutation_lease m
  set digest = p_digest, attempt_id = p_attempt_id, expires_at = p_now + relay.span_of('mutationLeaseMs')
  where m.digest is null or m.digest = p_digest or m.expires_at <= p_now;
  return found;
end
$$;
