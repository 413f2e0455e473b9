-- Registers a cell, or changes where it is and what it may carry. The admission of a registered cell stays as it is:
-- a fleet that is started anew must not undo what an operator decided.
-- Caller: operator, or the launcher of a local fleet. Locks: the row of the cell, then its latch, exclusive.
-- Outcomes: ok, forbidden.
create or replace function relay_v1.register_cell(
  cell_id text, url text, region text, capacity_units int, connection_hard_cap int default null,
  connection_unobserved_bound int default null, admission text default 'general')
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(register_cell.cell_id, register_cell.url, register_cell.region,
    register_cell.capacity_units, register_cell.connection_hard_cap, register_cell.connection_unobserved_bound,
    register_cell.admission);
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('register_cell', v_arguments, 'forbidden');
  end if;
  -- the row first, then the latch, as a statement by hand takes them
  perform pg_advisory_xact_lock(relay.latch_space(), c.latch)
  from (select x.latch from relay.cell x where x.cell_id = register_cell.cell_id for update) c;
  v_now := relay.now();
  insert into relay.cell as c (cell_id, url, region, capacity_units, connection_hard_cap, connection_unobserved_bound,
    admission, registered_at)
  values (register_cell.cell_id, register_cell.url, register_cell.region, register_cell.capacity_units,
    register_cell.connection_hard_cap, register_cell.connection_unobserved_bound, register_cell.admission, v_now)
  on conflict on constraint cell_pkey do update
  set url = excluded.url, region = excluded.region, capacity_units = excluded.capacity_units,
    connection_hard_cap = excluded.connection_hard_cap,
    connection_unobserved_bound = excluded.connection_unobserved_bound
  where (c.url, c.region, c.capacity_units, c.connection_hard_cap, c.connection_unobserved_bound) is distinct from
    (excluded.url, excluded.region, excluded.capacity_units, excluded.connection_hard_cap,
      excluded.connection_unobserved_bound);
  if found then
    perform relay.ring('cell_registered', register_cell.cell_id,
      jsonb_build_object('url', register_cell.url, 'region', register_cell.region), v_now);
  end if;
  return relay.audit('register_cell', v_arguments, 'ok');
end
$$;
comment on function relay_v1.register_cell(text, text, text, int, int, int, text) is
  'Registers a cell or changes its origin, region and capacity; its admission stays. ok or forbidden';
