-- The rows of the view relay_v1.drains. What is left is counted from the leases, now; what was told only the process
-- knows, and says with its heartbeat. Caller: view drains. Locks: none.
create or replace function relay.drains_rows()
returns table (
  cell_id text, region text, incarnation uuid, current boolean, ordered_at timestamptz, age interval, grace_ms int,
  pace_ms int, hosts int, seated int, promised int, retiring int, told int, "left" int, heard_age interval,
  progress numeric)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.region, c.drain_incarnation, coalesce(r.incarnation = c.drain_incarnation, false), c.drain_ordered_at,
    v_now - c.drain_ordered_at, c.drain_grace_ms, c.drain_pace_ms, c.drain_hosts, h.seated, h.promised, h.retiring,
    case when r.incarnation = c.drain_incarnation then r.drain_told end,
    case when r.incarnation = c.drain_incarnation then r.drain_left end,
    v_now - r.heard_at,
    case when h.seated + h.promised = 0 then 1.000
      else round(greatest(1 - (h.seated + h.promised)::numeric / greatest(c.drain_hosts, 1), 0), 3) end
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  cross join lateral (
    select count(*) filter (where l.state = 'active')::int as seated,
      count(*) filter (where l.state = 'granted')::int as promised,
      count(*) filter (where l.state = 'retiring')::int as retiring
    from relay.lease l
    where l.cell_id = c.cell_id and l.expires_at > v_now) h
  where c.drain_incarnation is not null;
end
$$;
