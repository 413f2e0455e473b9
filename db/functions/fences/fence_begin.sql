-- Begins to prove that a process of a cell is gone, or goes on with what was begun: the same arguments find the same
-- attempt again. Takes the fleet's mutation lease for 35 min.
-- Caller: operator. Locks: the cell, its latch (exclusive), its runtime row, its attempts, the mutation lease.
-- Outcomes: begun, forbidden, cell_not_found, cell_fence_admission_enabled (it is not existing-only),
-- cell_fence_runtime_mismatch (not the process of the last heartbeat), and those of begin_attempt.
create or replace function relay_v1.fence_begin(
  cell_id text, incarnation uuid, operation_id text, reason text, evidence jsonb default '{}')
returns relay_v1.fence_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_begin.cell_id, fence_begin.incarnation, fence_begin.operation_id,
    fence_begin.reason, fence_begin.evidence);
  v_cell relay.cell;
  v_wanted relay.fence_attempt;
  v_result relay_v1.fence_result;
begin
  if num_nulls(fence_begin.cell_id, fence_begin.incarnation, fence_begin.operation_id, fence_begin.reason,
    fence_begin.evidence) > 0 then
    perform relay.misuse('fence_begin: every argument is needed');
  elsif not relay.may_operate() then
    v_result.outcome := 'forbidden';
  else
    v_cell := relay.lock_cell(fence_begin.cell_id);
    perform from relay.cell_runtime r
    where r.cell_id = fence_begin.cell_id and r.incarnation = fence_begin.incarnation
    for update;
    v_result.outcome := case
      when v_cell.cell_id is null then 'cell_not_found'
      when v_cell.admission <> 'existing-only' then 'cell_fence_admission_enabled'
      when not found then 'cell_fence_runtime_mismatch'
    end;
  end if;
  if v_result.outcome is null then
    v_wanted.cell_id := fence_begin.cell_id;
    v_wanted.incarnation := fence_begin.incarnation;
    v_wanted.operation_id := fence_begin.operation_id;
    v_wanted.reason := fence_begin.reason;
    v_wanted.evidence := fence_begin.evidence;
    v_wanted.digest := encode(sha256(convert_to(v_arguments::text, 'utf8')), 'hex');
    v_result := relay.begin_attempt(v_wanted, relay.now());
  end if;
  perform relay.audit('fence_begin', v_arguments, v_result.outcome);
  return v_result;
end
$$;
comment on function relay_v1.fence_begin(text, uuid, text, text, jsonb) is
  'Begins to prove that a process of a cell is gone; the same arguments find the same attempt. begun, or why not';
