-- Gives an attempt up before its start, and frees the mutation lease.
-- Caller: operator. Locks: see lock_attempt; then the mutation lease.
-- Outcomes: ok (again too), forbidden, cell_fence_attempt_not_found, cell_fence_attempt_superseded,
-- cell_fence_apply_may_have_started (it was started: the machine may be gone).
create or replace function relay_v1.fence_abort(attempt_id uuid, reason text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_abort.attempt_id, fence_abort.reason);
  v_attempt relay.fence_attempt;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('fence_abort', v_arguments, 'forbidden');
  end if;
  v_attempt := relay.lock_attempt(fence_abort.attempt_id);
  v_now := relay.now();
  if v_attempt.attempt_id is null or v_attempt.closed_as = 'superseded' then
    return relay.audit('fence_abort', v_arguments, relay.attempt_refusal(v_attempt.closed_as));
  elsif v_attempt.started_at is not null then
    return relay.audit('fence_abort', v_arguments, 'cell_fence_apply_may_have_started');
  elsif v_attempt.closed_at is null then
    update relay.fence_attempt t
    set closed_at = v_now, closed_as = 'aborted', close_reason = fence_abort.reason
    where t.attempt_id = fence_abort.attempt_id;
    perform relay.free_mutation_lease(v_attempt.attempt_id);
    perform relay.ring('fence', v_attempt.cell_id, jsonb_build_object('state', 'aborted',
      'incarnation', v_attempt.incarnation, 'attempt_id', v_attempt.attempt_id), v_now);
  end if;
  return relay.audit('fence_abort', v_arguments, 'ok');
end
$$;
comment on function relay_v1.fence_abort(uuid, text) is 'Gives a fence attempt up before its start. ok, or why not';
