-- Takes a fence back: hosts may no longer leave the cell by it.
-- Caller: operator. Locks: the cell, its latch (exclusive), its runtime row, the fence.
-- Outcomes: ok, forbidden, cell_fence_attestation_missing (there is none).
create or replace function relay_v1.fence_release(cell_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_release.cell_id);
  v_fence relay.fence;
begin
  if not relay.may_operate() then
    return relay.audit('fence_release', v_arguments, 'forbidden');
  end if;
  perform relay.lock_cell(fence_release.cell_id);
  perform from relay.cell_runtime r where r.cell_id = fence_release.cell_id for update;
  delete from relay.fence f where f.cell_id = fence_release.cell_id returning f.* into v_fence;
  if not found then
    return relay.audit('fence_release', v_arguments, 'cell_fence_attestation_missing');
  end if;
  perform relay.ring('fence', v_fence.cell_id, jsonb_build_object('state', 'released',
    'incarnation', v_fence.incarnation, 'attempt_id', v_fence.attempt_id), relay.now());
  return relay.audit('fence_release', v_arguments, 'ok');
end
$$;
comment on function relay_v1.fence_release(text) is 'Takes a fence back. ok, or why not';
