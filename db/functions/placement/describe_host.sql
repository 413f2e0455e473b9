-- A row of a host with what belongs to it. Times inside the JSON are epoch milliseconds.
-- Caller: host_row. Locks: none.
create or replace function relay.describe_host(p_row relay.assignment)
returns setof relay_v1.host_row_result
language plpgsql stable
as $$
declare
  v_cell relay.cell;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_row.cell_id;
  return query select p_row.user_id, p_row.relay_host_id, p_row.cell_id, p_row.epoch, v_cell.url, v_cell.region,
    v_cell.admit_mode, p_row.last_activity_at, p_row.unattached_since, p_row.preferred_region,
    (select coalesce(jsonb_agg(jsonb_build_object('cell_id', l.cell_id, 'epoch', l.epoch, 'state', l.state,
        'incarnation', l.incarnation, 'generation', l.generation, 'units', l.units,
        'expires_at', (extract(epoch from l.expires_at) * 1000)::bigint,
        'retire_until', (extract(epoch from l.retire_until) * 1000)::bigint) order by l.cell_id), '[]')
      from relay.lease l
      where l.user_id = p_row.user_id and l.relay_host_id = p_row.relay_host_id),
    (select jsonb_build_object('epoch', m.epoch, 'source_cell', m.source_cell, 'target_cell', m.target_cell,
        'pinned', m.pinned_at is not null, 'registered', m.registered_at is not null,
        'opened_at', (extract(epoch from m.opened_at) * 1000)::bigint)
      from relay.migration m
      where m.user_id = p_row.user_id and m.relay_host_id = p_row.relay_host_id
        and m.completed_at is null and m.aborted_at is null),
    relay.now();
end
$$;
