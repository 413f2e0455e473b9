-- Sets what a cell takes: general (new hosts), migration-only (its own and migrated ones), existing-only (it is being
-- emptied). The roll stamp stays while the cell is migration-only, and goes with any other admission.
-- Two operators: name the generation you read in the view fleet, and the later of two writes is refused.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, admission_selector_generation_mismatch, cell_has_open_drain (a cell whose
-- process is told to drain cannot take new hosts: cancel_drain first).
create or replace function relay_v1.set_admission(cell_id text, admission text, expected_generation bigint default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(set_admission.cell_id, set_admission.admission,
    set_admission.expected_generation);
  v_cell relay.cell;
  v_refusal text;
begin
  if set_admission.admission in ('general', 'migration-only', 'existing-only') is not true then
    perform relay.misuse('set_admission: admission is general, migration-only or existing-only');
  elsif not relay.may_operate() then
    return relay.audit('set_admission', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(set_admission.cell_id);
  v_refusal := coalesce(relay.admission_refusal(v_cell, set_admission.expected_generation),
    case when set_admission.admission = 'general' and relay.has_open_drain(v_cell.cell_id) then 'cell_has_open_drain' end);
  if v_refusal is not null then
    return relay.audit('set_admission', v_arguments, v_refusal);
  end if;
  if v_cell.admission <> set_admission.admission then
    perform relay.change_admission(v_cell, set_admission.admission,
      case when set_admission.admission = 'migration-only' then v_cell.roll_isolated_at end, relay.now());
  end if;
  return relay.audit('set_admission', v_arguments, 'ok');
end
$$;
comment on function relay_v1.set_admission(text, text, bigint) is
  'Sets what a cell takes: general, migration-only or existing-only. ok, or why not';
