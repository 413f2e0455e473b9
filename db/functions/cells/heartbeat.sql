-- A cell says that it lives and what it carries. That voids its fence, and supersedes attempts to fence an older process.
-- Caller: cell, every 15 s, and after a failure again after 1, 2, 4 s. Locks: cell_runtime (its own row), then setting
-- after an outage, then its fence, its attempts and the mutation lease. Reads the cell without locking it; touches no lease.
-- Outcomes: ok, or a string of heartbeat_refusal, and then nothing is written.
create or replace function relay_v1.heartbeat(
  cell_id text, url text, region text, incarnation uuid, started_at timestamptz, ready boolean, load jsonb)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_cell relay.cell;
  v_before relay.cell_runtime;
  v_refusal text;
  v_now timestamptz;
begin
  if num_nulls(heartbeat.cell_id, heartbeat.incarnation, heartbeat.started_at, heartbeat.ready,
    heartbeat.load ->> 'inclusion_watermark') > 0 then
    perform relay.misuse('heartbeat: an argument or the watermark is missing');
  end if;
  select r.* into v_before from relay.cell_runtime r where r.cell_id = heartbeat.cell_id for update;
  select c.* into v_cell from relay.cell c where c.cell_id = heartbeat.cell_id;
  v_refusal := relay.heartbeat_refusal(v_cell, v_before, heartbeat.url, heartbeat.region, heartbeat.incarnation,
    heartbeat.started_at, heartbeat.load);
  if v_refusal is not null then
    return v_refusal;
  elsif heartbeat.load ->> 'enforced_units' is null then
    perform relay.misuse('heartbeat: enforced_units is missing');
  end if;
  v_now := relay.now();
  perform relay.note_outage(v_now);
  insert into relay.cell_runtime as r (cell_id, incarnation, started_at, ready, heard_at, enforced_units,
    inclusion_watermark, total_connections, in_flight_connections, reserved_units, drain_told, drain_left, director_seen_at)
  values (heartbeat.cell_id, heartbeat.incarnation, heartbeat.started_at, heartbeat.ready, v_now,
    (heartbeat.load ->> 'enforced_units')::int, (heartbeat.load ->> 'inclusion_watermark')::bigint,
    (heartbeat.load ->> 'total_connections')::int, (heartbeat.load ->> 'in_flight_connections')::int,
    (heartbeat.load ->> 'reserved_units')::int, (heartbeat.load ->> 'drain_told')::int,
    (heartbeat.load ->> 'drain_left')::int,
    v_now - make_interval(secs => (heartbeat.load ->> 'director_contact_ms')::float8 / 1000))
  on conflict on constraint cell_runtime_pkey do update
  set incarnation = excluded.incarnation, started_at = excluded.started_at, ready = excluded.ready,
    heard_at = excluded.heard_at, enforced_units = excluded.enforced_units,
    inclusion_watermark = excluded.inclusion_watermark, total_connections = excluded.total_connections,
    in_flight_connections = excluded.in_flight_connections, reserved_units = excluded.reserved_units,
    drain_told = excluded.drain_told, drain_left = excluded.drain_left,
    director_seen_at = excluded.director_seen_at
  -- two processes may both be the first of a cell: the second then meets a row that it did not lock and check
  where r.incarnation = excluded.incarnation or r.started_at < excluded.started_at;
  if not found then
    return 'stale_cell_incarnation';
  end if;
  perform relay.void_fence(heartbeat.cell_id, heartbeat.incarnation, v_now);
  if (v_before.incarnation, v_before.ready) is distinct from (heartbeat.incarnation, heartbeat.ready) then
    perform relay.ring('incarnation', heartbeat.cell_id,
      jsonb_build_object('incarnation', heartbeat.incarnation, 'ready', heartbeat.ready), v_now);
  end if;
  return 'ok';
end
$$;
comment on function relay_v1.heartbeat(text, text, text, uuid, timestamptz, boolean, jsonb) is
  'A cell says that it lives and what it carries; ok, or why the beat was refused';
