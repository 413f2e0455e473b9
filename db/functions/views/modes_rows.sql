-- The rows of the view relay_v1.modes. Caller: view modes. Locks: none.
create or replace function relay.modes_rows()
returns table (
  cell_id text, region text, admit_mode text, flag_mode text, flags jsonb, flags_generation bigint, effective_mode text,
  effective_age interval, unleased int, seated int, state text, heard_age interval, incarnation uuid, polled boolean,
  director_age interval)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.region, c.admit_mode, coalesce(c.flags ->> 'admitMode', 'db'), c.flags, c.flags_generation,
    e.mode, v_now - e.updated_at, e.unleased,
    (select count(*)::int from relay.lease l
      where l.cell_id = c.cell_id and l.incarnation = r.incarnation and l.state = 'active' and l.expires_at > v_now),
    case when r.heard_at is null then 'never heard' when r.heard_at <= v_now - relay.span_of('heartbeatTtlMs') then 'unheard'
      when not r.ready then 'not ready' else 'live' end,
    v_now - r.heard_at, r.incarnation, relay.is_polled(c.cell_id, v_now), v_now - r.director_seen_at
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  left join relay.cell_effective_mode e on e.cell_id = c.cell_id and e.incarnation = r.incarnation;
end
$$;
