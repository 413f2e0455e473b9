-- Ends a roll: the cell is general again, without stamp and without drain order.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, admission_selector_generation_mismatch, cell_not_isolated (it has no stamp).
create or replace function relay_v1.restore_after_roll(cell_id text, expected_generation bigint default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(restore_after_roll.cell_id, restore_after_roll.expected_generation);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('restore_after_roll', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(restore_after_roll.cell_id);
  v_refusal := coalesce(relay.admission_refusal(v_cell, restore_after_roll.expected_generation),
    case when v_cell.roll_isolated_at is null then 'cell_not_isolated' end);
  if v_refusal is not null then
    return relay.audit('restore_after_roll', v_arguments, v_refusal);
  end if;
  v_now := relay.now();
  if v_cell.drain_incarnation is not null then
    update relay.cell c
    set drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null, drain_ordered_at = null, drain_hosts = null
    where c.cell_id = v_cell.cell_id;
    perform relay.ring('drain', v_cell.cell_id,
      jsonb_build_object('state', 'cancelled', 'incarnation', v_cell.drain_incarnation), v_now);
  end if;
  perform relay.change_admission(v_cell, 'general', null, v_now);
  return relay.audit('restore_after_roll', v_arguments, 'ok');
end
$$;
comment on function relay_v1.restore_after_roll(text, bigint) is
  'Ends a roll: the cell takes new hosts again and its drain order is gone. ok, or why not';
