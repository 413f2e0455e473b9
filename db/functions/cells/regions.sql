-- The regions that take hosts now, each with the origins of up to two of its cells for a desktop to measure.
-- Caller: director, `GET /v1/regions`. Locks: none.
create or replace function relay_v1.regions()
returns table (region text, probe_origins text[])
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.region, (array_agg(distinct c.url order by c.url))[1:2]
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  -- a reserve cell takes hosts, too: by a booking
  where coalesce(relay.target_rejection(c, r, v_now), 'reserve') = 'reserve'
  group by c.region
  order by c.region;
end
$$;
comment on function relay_v1.regions() is 'Regions that take hosts now, each with one or two origins to measure';
