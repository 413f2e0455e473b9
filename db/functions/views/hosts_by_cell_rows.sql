-- The rows of the view relay_v1.hosts_by_cell. Cells that are no longer registered but have hosts are among them.
-- Caller: view hosts_by_cell. Locks: none.
create or replace function relay.hosts_by_cell_rows()
returns table (cell_id text, hosts bigint, granted bigint, active bigint, retiring bigint, units bigint)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  with host as (
    select a.cell_id, count(*) as hosts from relay.assignment a group by a.cell_id
  ), held as (
    select l.cell_id, count(*) filter (where l.state = 'granted') as granted,
      count(*) filter (where l.state = 'active') as active, count(*) filter (where l.state = 'retiring') as retiring,
      sum(l.units) as units
    from relay.lease l
    where l.expires_at > v_now
    group by l.cell_id
  )
  select k.cell_id, coalesce(h.hosts, 0), coalesce(d.granted, 0), coalesce(d.active, 0), coalesce(d.retiring, 0),
    coalesce(d.units, 0)
  from (select c.cell_id from relay.cell c union select h.cell_id from host h union select d.cell_id from held d) k
  left join host h on h.cell_id = k.cell_id
  left join held d on d.cell_id = k.cell_id;
end
$$;
