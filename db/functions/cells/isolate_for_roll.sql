-- Sets a cell apart for the replacement of its process: migration-only, with a stamp of when. Done again it keeps the
-- first stamp, so that a wave that failed half-way does not make the new process look like the old one (rule 10); one that
-- is 2 h old and means nothing any more is replaced.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, admission_selector_generation_mismatch, admission_selector_legacy_reenable
-- (an existing-only cell is being emptied: the restore that ends a roll would open it again).
create or replace function relay_v1.isolate_for_roll(cell_id text, expected_generation bigint default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(isolate_for_roll.cell_id, isolate_for_roll.expected_generation);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('isolate_for_roll', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(isolate_for_roll.cell_id);
  v_refusal := coalesce(relay.admission_refusal(v_cell, isolate_for_roll.expected_generation),
    case when v_cell.admission = 'existing-only' then 'admission_selector_legacy_reenable' end);
  if v_refusal is not null then
    return relay.audit('isolate_for_roll', v_arguments, v_refusal);
  end if;
  v_now := relay.now();
  if (v_now - v_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true then
    perform relay.change_admission(v_cell, 'migration-only', v_now, v_now);
  end if;
  return relay.audit('isolate_for_roll', v_arguments, 'ok');
end
$$;
comment on function relay_v1.isolate_for_roll(text, bigint) is
  'Sets a cell apart for the replacement of its process, with a stamp that is kept for 2 h. ok, or why not';
