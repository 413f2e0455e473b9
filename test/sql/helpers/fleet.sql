-- A fleet in a few words, for pgTAP files about placement: `\ir helpers/fleet.sql`. Hosts belong to 'user'.

-- A heartbeat of the n-th process of a cell. A capped one reports its units as connections, or what `counts` says.
create function pg_temp.beat(cell text, units int default 0, ready boolean default true, process int default 1,
  started timestamptz default null, counts jsonb default '{}') returns text language sql as $$
  select relay_v1.heartbeat(c.cell_id, c.url, c.region, lpad(process::text, 32, '0')::uuid,
    coalesce(started, (select r.started_at from relay.cell_runtime r
      where r.cell_id = cell and r.incarnation = lpad(process::text, 32, '0')::uuid),
      timestamptz '2029-01-01' + make_interval(secs => process)), ready,
    jsonb_build_object('enforced_units', units, 'inclusion_watermark', 1) || case when c.connection_hard_cap is null then '{}'
      else jsonb_build_object('total_connections', units, 'in_flight_connections', 0, 'reserved_units', 0,
        'hard_cap', c.connection_hard_cap, 'unobserved_bound', c.connection_unobserved_bound) end || counts)
  from relay.cell c where c.cell_id = cell
$$;
-- Lets time pass while the named cells live, so that silences may be judged.
create function pg_temp.live_on(seconds int, variadic cells text[]) returns text language plpgsql as $$
begin
  for s in 1 .. seconds loop
    perform test_clock.advance('1 s');
    if s % 15 = 0 or s = seconds then
      perform pg_temp.beat(x) from unnest(cells) x;
    end if;
  end loop;
  return null;
end $$;
-- assign in one line. seen: 'cell epoch'; dead: the cell that the director's polls judged dead, `age` ago.
create function pg_temp.ask(host text, by text default 'host', region text default null, place boolean default true,
  floor bigint default null, seen text default null, dead text default null, age interval default '0') returns text language sql as $$
  select concat_ws(' ', r.outcome, r.rule, r.cause, r.cell_id, r.epoch, case when r.moved then 'from ' || r.from_cell_id end,
    case when r.verdict_wanted then '(verdict wanted)' end)
  from relay_v1.assign('user', host, region, by, floor, place => place,
    poll_evidence => case when dead is not null then
      jsonb_build_object('cell_id', dead, 'dead', true, 'evaluated_at', relay.now() - age) end,
    seen => case when seen is not null then
      jsonb_build_object('cell_id', split_part(seen, ' ', 1), 'epoch', split_part(seen, ' ', 2)::bigint) end) r
$$;
create function pg_temp.seat(host text, cell text, epoch bigint default 4, unattached interval default null,
  active interval default '0') returns void language sql as $$
  insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at, unattached_since)
  values ('user', host, cell, epoch, relay.now() - active, relay.now() - unattached)
$$;
create function pg_temp.hold(host text, cell text, epoch bigint default 4, state text default 'active',
  life interval default '105 s') returns void language sql as $$
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, state, units, expires_at, incarnation, generation,
    inclusion_watermark, retire_until)
  select 'user', host, cell, epoch, state, 1, relay.now() + life, i.u, i.g, i.g,
    case when state = 'retiring' then relay.now() + interval '60 s' end
  from (values (case when state <> 'granted' then lpad('1', 32, '0')::uuid end, case when state <> 'granted' then 1 end)) i (u, g)
$$;
create function pg_temp.migrate(host text, source text, target text, epoch bigint default 4, pinned boolean default true)
returns void language sql as $$
  select relay.open_migration('user', host, epoch, source, target, pinned, relay.now())
$$;
create function pg_temp.leases(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', l.cell_id, l.state, l.epoch), ', ' order by l.cell_id) from relay.lease l where l.relay_host_id = host
$$;
-- What the log says about where a host belongs.
create function pg_temp.changes(host text) returns text language sql as $$
  select string_agg(concat_ws(' ', c.kind, c.from_cell, c.to_cell, c.epoch, c.rule), ', ' order by c.id)
  from relay.change c where c.relay_host_id = host and c.kind <> 'migration'
$$;
create function pg_temp.home(host text) returns text language sql as $$
  select a.cell_id || ' ' || a.epoch from relay.assignment a where a.relay_host_id = host
$$;
-- Row and leases of a host that nothing was done about: it held a lease at epoch 4.
create function pg_temp.untouched(host text, cell text) returns boolean language sql as $$
  select pg_temp.home(host) = cell || ' 4' and pg_temp.leases(host) = cell || ' active 4' and pg_temp.changes(host) is null
$$;
create function pg_temp.retires_in(host text, cell text) returns interval language sql as $$
  select l.retire_until - relay.now() from relay.lease l where l.relay_host_id = host and l.cell_id = cell
$$;
create function pg_temp.order_drain(cell text, grace int, process int default 1) returns void language sql as $$
  update relay.cell c set drain_incarnation = lpad(process::text, 32, '0')::uuid, drain_grace_ms = grace, drain_pace_ms = 0,
    drain_ordered_at = relay.now(), drain_hosts = 0
  where c.cell_id = cell
$$;
create function pg_temp.cancel_drain(cell text) returns void language sql as $$
  update relay.cell c set drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null, drain_ordered_at = null,
    drain_hosts = null
  where c.cell_id = cell
$$;
create function pg_temp.fence(cell text, process int default 1) returns void language sql as $$
  with t as (
    insert into relay.fence_attempt (cell_id, incarnation, operation_id, reason, evidence, digest, begun_at, started_at, completed_at)
    values (cell, lpad(process::text, 32, '0')::uuid, 'op', 'gone', '{}', 'digest', relay.now(), relay.now(), relay.now())
    returning attempt_id, incarnation
  )
  insert into relay.fence (cell_id, attempt_id, incarnation, committed_at, expires_at)
  select cell, t.attempt_id, t.incarnation, relay.now(), relay.now() + interval '5 min' from t
$$;
