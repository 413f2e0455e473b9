-- Forgets a cell for good, once nothing is on it.
-- Caller: operator. Locks: the cell, its latch (exclusive), its runtime row.
-- Outcomes: ok, forbidden, cell_not_found, cell_in_reserve_mode, cell_admission_enabled (set it existing-only first),
-- cell_has_open_migration, cell_has_open_fence, cell_has_hosts, cell_still_heard (stop its process first).
create or replace function relay_v1.retire_cell(cell_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(retire_cell.cell_id);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('retire_cell', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(retire_cell.cell_id);
  perform from relay.cell_runtime r where r.cell_id = retire_cell.cell_id for update;
  v_now := relay.now();
  v_refusal := relay.retire_refusal(v_cell, v_now);
  if v_refusal is not null then
    return relay.audit('retire_cell', v_arguments, v_refusal);
  end if;
  delete from relay.fence f where f.cell_id = retire_cell.cell_id;
  delete from relay.cell_effective_mode e where e.cell_id = retire_cell.cell_id;
  delete from relay.cell_runtime r where r.cell_id = retire_cell.cell_id;
  delete from relay.cell c where c.cell_id = retire_cell.cell_id;
  perform relay.ring('cell_retired', retire_cell.cell_id, jsonb_build_object('url', v_cell.url, 'region', v_cell.region),
    v_now);
  return relay.audit('retire_cell', v_arguments, 'ok');
end
$$;
comment on function relay_v1.retire_cell(text) is 'Forgets a cell on which nothing is left. ok, or what is';
