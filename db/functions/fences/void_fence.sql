-- An accepted heartbeat: the cell lives, so its fence says nothing any more; and if another process than the last one is
-- heard, the open attempts to prove that one gone are superseded. Frees the mutation lease that they held.
-- Caller: heartbeat, which holds the runtime row. Locks: the cell's fence and attempts, the mutation lease.
create or replace function relay.void_fence(p_cell_id text, p_incarnation uuid, p_now timestamptz)
returns void
language plpgsql
as $$
declare
  v_ended record;
begin
  for v_ended in
    with voided as (
      delete from relay.fence f where f.cell_id = p_cell_id returning f.attempt_id, f.incarnation
    ), superseded as (
      update relay.fence_attempt t
      set closed_at = p_now, closed_as = 'superseded'
      where t.cell_id = p_cell_id and t.incarnation <> p_incarnation and t.completed_at is null and t.closed_at is null
      returning t.attempt_id, t.incarnation
    )
    select 'voided' as state, v.attempt_id, v.incarnation from voided v
    union all
    select 'superseded', s.attempt_id, s.incarnation from superseded s
  loop
    perform relay.free_mutation_lease(v_ended.attempt_id);
    perform relay.ring('fence', p_cell_id, jsonb_build_object('state', v_ended.state,
      'incarnation', v_ended.incarnation, 'attempt_id', v_ended.attempt_id), p_now);
  end loop;
end
$$;
