-- What assign would answer each host of cells that fall silent, all other cells going on: who would move where, and who
-- would be refused. A row a host that was active in the last 24 h, at most max_hosts (a notice says if there are more).
-- The decision is assign's own. What it cannot read is assumed: silences are judged as long as another cell is heard; the
-- directors' polls agree, and their guards (sample, fleet, region) withhold as they would with every heard cell on their
-- feed; of all targets the emptiest is taken, where assign takes the emptier of two at random. Each move adds a unit to
-- the load of its target, as its lease would.
-- Caller: operator, monitor. Locks: none; writes nothing. SQLSTATE RL001 without a known cell.
create or replace function relay_v1.simulate_outage(
  cells text[] default null, region text default null, max_hosts int default 10000)
returns table (
  user_id text, relay_host_id text, from_cell text, outcome text, rule text, cause text, to_cell text, to_region text,
  to_load int, to_limit int)
language plpgsql stable
security definer
set search_path = relay, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now constant timestamptz := relay.now();
  v_dead constant text[] := relay.cells_in_outage(simulate_outage.cells, simulate_outage.region);
  v_polled constant text[] := relay.cells_judged_dead(v_dead, v_now);
  v_judged constant boolean := exists (
    select from relay.cell_runtime r
    where r.cell_id <> all (v_dead) and r.heard_at > v_now - relay.span_of('hearingWindowMs'));
  v_host record;
  v_ask relay.ask;
  v_home relay.home;
  v_d relay.decision;
  v_ids text[];
  v_regions text[];
  v_loads int[];
  v_limits int[];
  v_at int;
begin
  select array_agg(c.cell_id order by c.cell_id), array_agg(c.region order by c.cell_id),
    array_agg(relay.load(c.cell_id, v_now) order by c.cell_id), array_agg(c.unit_limit order by c.cell_id)
  into v_ids, v_regions, v_loads, v_limits
  from relay.cell c
  join relay.cell_runtime r on r.cell_id = c.cell_id
  where relay.target_rejection(c, r, v_now) is null and c.cell_id <> all (v_dead);
  for v_host in
    select a.user_id, a.relay_host_id, count(*) over () as active
    from relay.assignment a
    where a.cell_id = any (v_dead) and a.last_activity_at > v_now - relay.span_of('dormantTtlMs')
    order by a.user_id, a.relay_host_id
    limit simulate_outage.max_hosts
  loop
    v_ask := (v_host.user_id, v_host.relay_host_id, null, 'host', 0, null, null, null, null);
    v_home := relay.read_home(v_ask, v_now);
    v_home.live := false; v_home.fresh := false; v_home.judged := v_judged;
    if v_home.cell_id = any (v_polled) then
      v_ask.dead_cell_id := v_home.cell_id; v_ask.dead_at := v_now;
    end if;
    v_d := relay.decide_assign(v_ask, v_home, v_now);
    v_at := null;
    if v_d.action in ('place', 'move') then
      v_at := relay.emptiest(v_d.target_region, v_regions, v_loads, v_limits);
    end if;
    if v_at is null then
      v_d := relay.without_target(v_d);
    else
      v_loads[v_at] := v_loads[v_at] + 1;
      v_d.outcome := 'granted';
    end if;
    return query select v_host.user_id, v_host.relay_host_id, v_home.cell_id, v_d.outcome, v_d.rule,
      case when v_d.outcome = 'unavailable' then v_d.cause end, v_ids[v_at], v_regions[v_at], v_loads[v_at], v_limits[v_at];
  end loop;
  if v_host.active > simulate_outage.max_hosts then
    raise notice 'the first % of % hosts that were active in the last 24 h', simulate_outage.max_hosts, v_host.active;
  end if;
end
$$;
comment on function relay_v1.simulate_outage(text[], text, int) is
  'What assign would answer each host of cells that fall silent: who would move where, who would be refused; writes nothing';
