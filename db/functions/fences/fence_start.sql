-- The operator is about to stop the machine: from here on the attempt can no longer be aborted. Holds the mutation lease
-- 35 min longer, or takes it again.
-- Caller: operator. Locks: see lock_attempt; then the mutation lease.
-- Outcomes: ok (again too), forbidden, cell_fence_attempt_not_found, _aborted, _expired (not started within 60 min),
-- _superseded, mutation_lease_conflict.
create or replace function relay_v1.fence_start(attempt_id uuid)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_start.attempt_id);
  v_attempt relay.fence_attempt;
  v_state text;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('fence_start', v_arguments, 'forbidden');
  end if;
  v_attempt := relay.lock_attempt(fence_start.attempt_id);
  v_now := relay.now();
  v_state := case when v_attempt.attempt_id is not null then relay.attempt_state(v_attempt, v_now) end;
  v_refusal := relay.attempt_refusal(v_state);
  if v_refusal is null and v_state = 'begun' then
    if relay.take_mutation_lease(v_attempt.attempt_id, v_attempt.digest, v_now) then
      update relay.fence_attempt t set started_at = v_now where t.attempt_id = fence_start.attempt_id;
      perform relay.ring('fence', v_attempt.cell_id, jsonb_build_object('state', 'started',
        'incarnation', v_attempt.incarnation, 'attempt_id', v_attempt.attempt_id), v_now);
    else
      v_refusal := 'mutation_lease_conflict';
    end if;
  end if;
  return relay.audit('fence_start', v_arguments, coalesce(v_refusal, 'ok'));
end
$$;
comment on function relay_v1.fence_start(uuid) is 'Says that the machine is about to be stopped; the attempt cannot be aborted any more. ok, or why not';
