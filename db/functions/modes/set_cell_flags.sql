-- Replaces the flags of a cell, as their next generation. The cell reads them on the doorbell, and every 5 s without.
-- Two operators: name the generation you read, 0 at first, and the later of two writes is refused.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, cell_flags_generation_mismatch, cell_flags_invalid (a known flag with a value
-- that cells do not accept), cell_not_in_reserve_mode (set_admit_mode comes first), cell_tripped (write db, then reserve).
create or replace function relay_v1.set_cell_flags(cell_id text, flags jsonb, expected_generation bigint)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(set_cell_flags.cell_id, set_cell_flags.flags,
    set_cell_flags.expected_generation);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if set_cell_flags.expected_generation is null then
    perform relay.misuse('set_cell_flags: expected_generation is needed, 0 for the first flags');
  elsif not relay.may_operate() then
    return relay.audit('set_cell_flags', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(set_cell_flags.cell_id);
  v_now := relay.now();
  v_refusal := relay.flags_refusal(v_cell, set_cell_flags.flags, set_cell_flags.expected_generation, v_now);
  if v_refusal is not null then
    return relay.audit('set_cell_flags', v_arguments, v_refusal);
  end if;
  update relay.cell c
  set flags = set_cell_flags.flags, flags_generation = c.flags_generation + 1
  where c.cell_id = v_cell.cell_id;
  perform relay.ring('flags', v_cell.cell_id, jsonb_build_object('generation', v_cell.flags_generation + 1), v_now);
  return relay.audit('set_cell_flags', v_arguments, 'ok');
end
$$;
comment on function relay_v1.set_cell_flags(text, jsonb, bigint) is
  'Replaces the flags of a cell if their generation is still the expected one. ok, or why not';
