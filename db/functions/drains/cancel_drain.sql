-- Takes a drain order back: hosts that were not told yet stay.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, drain_attempt_not_found (there is no order).
create or replace function relay_v1.cancel_drain(cell_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(cancel_drain.cell_id);
  v_cell relay.cell;
begin
  if not relay.may_operate() then
    return relay.audit('cancel_drain', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(cancel_drain.cell_id);
  if v_cell.cell_id is null or v_cell.drain_incarnation is null then
    return relay.audit('cancel_drain', v_arguments,
      case when v_cell.cell_id is null then 'cell_not_found' else 'drain_attempt_not_found' end);
  end if;
  update relay.cell c
  set drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null, drain_ordered_at = null, drain_hosts = null
  where c.cell_id = cancel_drain.cell_id;
  perform relay.ring('drain', cancel_drain.cell_id,
    jsonb_build_object('state', 'cancelled', 'incarnation', v_cell.drain_incarnation), relay.now());
  return relay.audit('cancel_drain', v_arguments, 'ok');
end
$$;
comment on function relay_v1.cancel_drain(text) is 'Takes a drain order back. ok, or why not';
