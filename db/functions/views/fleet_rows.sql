-- The rows of the view relay_v1.fleet. A function, so that who reads the view needs no right on the clock.
-- Caller: view fleet. Locks: none.
create or replace function relay.fleet_rows()
returns table (
  cell_id text, url text, region text, admission text, admit_mode text, live boolean, ready boolean,
  heard_age interval, enforced_units int, load int, unit_limit int, capped boolean, draining boolean, incarnation uuid,
  started_at timestamptz, state text, effective_mode text, free_units int, admission_generation bigint, roll_age interval,
  drain_progress numeric)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_live_since timestamptz := v_now - relay.span_of('heartbeatTtlMs');
begin
  return query
  select c.cell_id, c.url, c.region, c.admission, c.admit_mode, coalesce(r.ready and r.heard_at > v_live_since, false),
    r.ready, v_now - r.heard_at, r.enforced_units, l.load, c.unit_limit, c.connection_hard_cap is not null,
    coalesce(c.drain_incarnation = r.incarnation, false), r.incarnation, r.started_at,
    case when r.heard_at is null then 'never heard' when r.heard_at <= v_live_since then 'unheard'
      when not r.ready then 'not ready' else 'live' end,
    e.mode, case when l.load is not null then greatest(c.unit_limit - l.load, 0) end, c.admission_generation,
    v_now - c.roll_isolated_at, d.progress
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  left join relay.cell_effective_mode e on e.cell_id = c.cell_id
  left join relay.drains_rows() d on d.cell_id = c.cell_id and d.current
  left join lateral relay.cell_load(c.cell_id, v_now) l on true;
end
$$;
