-- Moves hosts off a cell to one that the operator names, at most max_hosts a call; call again until none remains.
-- Caller: operator. Locks: the hosts' rows (skipped if locked), the latches of both cells, the hosts' leases.
-- A latch that is not had within 500 ms is SQLSTATE 55P03, and nothing is moved: call again.
-- Outcomes: ok (with hosts moved, and hosts still there), forbidden, target_matches_source, those of source_refusal and
-- evacuation_refusal.
create or replace function relay_v1.evacuate_cell(source text, target text, max_hosts int default 100)
returns relay_v1.evacuate_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(evacuate_cell.source, evacuate_cell.target, evacuate_cell.max_hosts);
  v_hosts relay.assignment[];
  v_host relay.assignment;
  v_result relay_v1.evacuate_result;
  v_pinned boolean;
  v_grace interval;
  v_free int;
  v_units int;
  v_now timestamptz := relay.now();
begin
  if evacuate_cell.max_hosts between 1 and relay.limit_of('evacuationMaxHosts') is not true then
    perform relay.misuse(format('evacuate_cell: max_hosts is 1 to %s', relay.limit_of('evacuationMaxHosts')));
  end if;
  v_result.moved := 0;
  v_result.outcome := case
    when not relay.may_operate() then 'forbidden'
    when evacuate_cell.source = evacuate_cell.target then 'target_matches_source'
    else coalesce(relay.source_refusal(evacuate_cell.source, v_now), relay.evacuation_refusal(evacuate_cell.target, v_now))
  end;
  if v_result.outcome is null then
    v_hosts := array(
      select a from relay.assignment a
      where a.cell_id = evacuate_cell.source and relay.may_be_evacuated(a, v_now)
      order by a.user_id, a.relay_host_id
      limit evacuate_cell.max_hosts
      for no key update skip locked);
    perform relay.latch_pair(evacuate_cell.source, evacuate_cell.target);
    v_now := relay.now();
    v_result.outcome := coalesce(relay.source_refusal(evacuate_cell.source, v_now),
      relay.evacuation_refusal(evacuate_cell.target, v_now), 'ok');
  end if;
  if v_result.outcome = 'ok' then
    v_pinned := relay.has_open_drain(evacuate_cell.source);
    select case when v_pinned then make_interval(secs => c.drain_grace_ms / 1000.0) else relay.span_of('retiringLeaseMs') end
    into v_grace from relay.cell c where c.cell_id = evacuate_cell.source;
    select c.unit_limit - relay.load(c.cell_id, v_now) into v_free from relay.cell c where c.cell_id = evacuate_cell.target;
    foreach v_host in array v_hosts loop
      v_units := relay.evacuate_host(v_host, evacuate_cell.target, v_free > 0, v_pinned, v_grace, v_now);
      v_free := v_free - coalesce(v_units, 0);
      v_result.moved := v_result.moved + (v_units is not null)::int;
    end loop;
    v_result.remaining := (select count(*) from relay.assignment a where a.cell_id = evacuate_cell.source);
  end if;
  perform relay.audit('evacuate_cell', v_arguments, v_result.outcome);
  return v_result;
end
$$;
comment on function relay_v1.evacuate_cell(text, text, int) is
  'Moves up to max_hosts hosts of a cell to another; ok with how many, or why not';
