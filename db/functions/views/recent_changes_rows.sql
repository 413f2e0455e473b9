-- The rows of the view relay_v1.recent_changes: the end of the change log. Hosts appear as logs name them (a digest), so
-- that the monitor learns no host's id. Caller: view recent_changes. Locks: none.
create or replace function relay.recent_changes_rows()
returns table (
  id bigint, age interval, kind text, host text, from_cell text, to_cell text, epoch bigint, rule text, detail jsonb)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.id, v_now - c.at, c.kind,
    left(encode(sha256(convert_to(c.user_id, 'UTF8') || '\x00'::bytea || convert_to(c.relay_host_id, 'UTF8')), 'hex'), 12),
    c.from_cell, c.to_cell, c.epoch, c.rule, c.detail
  from relay.change c
  order by c.id desc
  limit 1000;
end
$$;
