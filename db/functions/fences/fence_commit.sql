-- The machine is gone: from now on for 5 min the cell's hosts may leave it. Committing again renews the 5 min and keeps
-- the time of the first. Frees the mutation lease.
-- Caller: operator. Locks: see lock_attempt; then the fence and the mutation lease.
-- Outcomes: ok, forbidden, and those of commit_refusal.
create or replace function relay_v1.fence_commit(attempt_id uuid, evidence jsonb default '{}')
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_commit.attempt_id, fence_commit.evidence);
  v_attempt relay.fence_attempt;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('fence_commit', v_arguments, 'forbidden');
  end if;
  v_attempt := relay.lock_attempt(fence_commit.attempt_id);
  v_now := relay.now();
  v_refusal := relay.commit_refusal(v_attempt, v_now);
  if v_refusal is not null then
    return relay.audit('fence_commit', v_arguments, v_refusal);
  end if;
  update relay.fence_attempt t
  set completed_at = coalesce(t.completed_at, v_now), commit_evidence = fence_commit.evidence
  where t.attempt_id = fence_commit.attempt_id;
  insert into relay.fence (cell_id, attempt_id, incarnation, committed_at, expires_at)
  values (v_attempt.cell_id, v_attempt.attempt_id, v_attempt.incarnation, v_now, v_now + relay.span_of('fenceTtlMs'))
  on conflict on constraint fence_pkey do update
  set attempt_id = excluded.attempt_id, incarnation = excluded.incarnation, committed_at = excluded.committed_at,
    expires_at = excluded.expires_at;
  perform relay.free_mutation_lease(v_attempt.attempt_id);
  perform relay.ring('fence', v_attempt.cell_id, jsonb_build_object('state', 'committed',
    'incarnation', v_attempt.incarnation, 'attempt_id', v_attempt.attempt_id), v_now);
  return relay.audit('fence_commit', v_arguments, 'ok');
end
$$;
comment on function relay_v1.fence_commit(uuid, jsonb) is
  'Says that the machine is gone: for 5 min hosts may leave its cell; again renews. ok, or why not';
