-- What the operators want of a cell: admission, mode, flags, and the drain order if it is for this process.
-- Caller: cell, on a doorbell and every 5 s. Locks: none. Outcomes: one row; none if the cell is not registered.
create or replace function relay_v1.cell_orders(cell_id text, incarnation uuid)
returns setof relay_v1.cell_orders_result
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
begin
  return query
  select c.admission, c.admit_mode, c.flags, c.flags_generation,
    case when c.drain_incarnation = cell_orders.incarnation then jsonb_build_object(
      'grace_ms', c.drain_grace_ms, 'pace_ms', c.drain_pace_ms, 'incarnation', c.drain_incarnation,
      'ordered_at', (extract(epoch from c.drain_ordered_at) * 1000)::bigint) end
  from relay.cell c
  where c.cell_id = cell_orders.cell_id;
end
$$;
comment on function relay_v1.cell_orders(text, uuid) is 'What the operators want of a cell: admission, mode, flags, drain order';
