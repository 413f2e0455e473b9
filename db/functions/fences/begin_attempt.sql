-- Finds the attempt that this call goes on with, or makes it, and takes the mutation lease for it.
-- Caller: fence_begin, which holds the cell, its latch and its runtime row. Locks: the cell's attempts, the mutation lease.
-- Outcomes: begun; cell_fence_attempt_evidence_mismatch (another one is open); cell_fence_already_attested (another one
-- has a fence that holds); mutation_lease_conflict.
create or replace function relay.begin_attempt(p_wanted relay.fence_attempt, p_now timestamptz)
returns relay_v1.fence_result
language plpgsql
as $$
declare
  v_expired uuid;
  v_attempt relay.fence_attempt;
  v_result relay_v1.fence_result;
begin
  update relay.fence_attempt t
  set closed_at = p_now, closed_as = 'expired'
  where t.cell_id = p_wanted.cell_id and t.closed_at is null and relay.attempt_state(t, p_now) = 'expired'
  returning t.attempt_id into v_expired;
  -- begun again late in its hour it holds the lease beyond its end, and nothing else would free it
  perform relay.free_mutation_lease(v_expired);
  select t.* into v_attempt
  from relay.fence_attempt t
  where t.cell_id = p_wanted.cell_id and t.incarnation = p_wanted.incarnation and t.closed_at is null
  order by t.digest = p_wanted.digest desc, t.completed_at nulls first
  limit 1
  for update;
  if v_attempt.digest <> p_wanted.digest and v_attempt.completed_at is null then
    v_result.outcome := 'cell_fence_attempt_evidence_mismatch';
  elsif v_attempt.digest <> p_wanted.digest and relay.is_fenced(p_wanted.cell_id, p_now) then
    v_result.outcome := 'cell_fence_already_attested';
  else
    if v_attempt.digest is distinct from p_wanted.digest then
      v_attempt := p_wanted;
      v_attempt.attempt_id := gen_random_uuid();
      v_attempt.begun_at := p_now;
    end if;
    if v_attempt.completed_at is null
      and not relay.take_mutation_lease(v_attempt.attempt_id, v_attempt.digest, p_now) then
      v_result.outcome := 'mutation_lease_conflict';
      return v_result;
    end if;
    insert into relay.fence_attempt select (v_attempt).* on conflict on constraint fence_attempt_pkey do nothing;
    if found then
      perform relay.ring('fence', p_wanted.cell_id, jsonb_build_object('state', 'begun',
        'incarnation', p_wanted.incarnation, 'attempt_id', v_attempt.attempt_id), p_now);
    end if;
    v_result.outcome := 'begun';
    v_result.attempt_id := v_attempt.attempt_id;
    v_result.state := relay.attempt_state(v_attempt, p_now);
    v_result.begun_at := v_attempt.begun_at;
    v_result.lease_expires_at := (select m.expires_at from relay.mutation_lease m where m.attempt_id = v_attempt.attempt_id);
  end if;
  return v_result;
end
$$;
