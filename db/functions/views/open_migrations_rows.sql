-- The rows of the view relay_v1.open_migrations. Caller: view open_migrations. Locks: none.
create or replace function relay.open_migrations_rows()
returns table (
  user_id text, relay_host_id text, epoch bigint, source_cell text, target_cell text, pinned boolean, registered boolean,
  age interval, expires_in interval, source_lease text, target_lease text, next_step text)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select m.user_id, m.relay_host_id, m.epoch, m.source_cell, m.target_cell, m.pinned_at is not null,
    m.registered_at is not null, v_now - m.opened_at, m.expires_at - v_now, s.state, t.state,
    relay.migration_step(m, v_now)
  from relay.migration m
  left join relay.lease s on s.user_id = m.user_id and s.relay_host_id = m.relay_host_id and s.cell_id = m.source_cell
    and s.expires_at > v_now
  left join relay.lease t on t.user_id = m.user_id and t.relay_host_id = m.relay_host_id and t.cell_id = m.target_cell
    and t.expires_at > v_now
  where m.completed_at is null and m.aborted_at is null;
end
$$;
