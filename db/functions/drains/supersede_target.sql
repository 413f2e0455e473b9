-- Moves the open migrations of a source off a target that died on them to another one, at most max_hosts a call. Each
-- ends, and another with a new epoch takes its place; its pin and the process it leaves are carried over.
-- Caller: operator. Locks: the hosts' rows (skipped if locked), the latches of both targets, the hosts' leases and
-- migrations.
-- A latch that is not had within 500 ms is SQLSTATE 55P03, and nothing is moved: call again.
-- Outcomes: ok (with hosts moved, and migrations still there), forbidden, target_matches_source (the replacement is the
-- source or the dead target), cell_fence_admission_enabled (the dead target is not existing-only),
-- cell_fence_attestation_missing (it is not fenced), those of evacuation_refusal for the replacement.
create or replace function relay_v1.supersede_target(source text, dead_target text, replacement text, max_hosts int default 100)
returns relay_v1.evacuate_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(supersede_target.source, supersede_target.dead_target,
    supersede_target.replacement, supersede_target.max_hosts);
  v_hosts relay.assignment[];
  v_host relay.assignment;
  v_result relay_v1.evacuate_result;
  v_free int;
  v_now timestamptz := relay.now();
begin
  if supersede_target.max_hosts between 1 and relay.limit_of('evacuationMaxHosts') is not true then
    perform relay.misuse(format('supersede_target: max_hosts is 1 to %s', relay.limit_of('evacuationMaxHosts')));
  end if;
  v_result.moved := 0;
  v_result.outcome := case when not relay.may_operate() then 'forbidden' else relay.supersede_refusal(
    supersede_target.source, supersede_target.dead_target, supersede_target.replacement, v_now) end;
  if v_result.outcome is null then
    v_hosts := array(
      select a
      from relay.migration m
      join relay.assignment a on a.user_id = m.user_id and a.relay_host_id = m.relay_host_id
        and a.cell_id = m.target_cell and a.epoch = m.epoch
      where m.source_cell = supersede_target.source and m.target_cell = supersede_target.dead_target
        and m.completed_at is null and m.aborted_at is null
      order by a.user_id, a.relay_host_id
      limit supersede_target.max_hosts
      for no key update of a skip locked);
    perform relay.latch_pair(supersede_target.dead_target, supersede_target.replacement);
    v_now := relay.now();
    v_result.outcome := coalesce(relay.supersede_refusal(
      supersede_target.source, supersede_target.dead_target, supersede_target.replacement, v_now), 'ok');
  end if;
  if v_result.outcome = 'ok' then
    select c.unit_limit - relay.load(c.cell_id, v_now) into v_free
    from relay.cell c where c.cell_id = supersede_target.replacement;
    foreach v_host in array v_hosts loop
      exit when v_result.moved >= v_free;
      v_result.moved := v_result.moved + relay.supersede_migration(v_host, supersede_target.replacement, v_now)::int;
    end loop;
    v_result.remaining := (select count(*) from relay.migration m
      where m.source_cell = supersede_target.source and m.target_cell = supersede_target.dead_target
        and m.completed_at is null and m.aborted_at is null);
  end if;
  perform relay.audit('supersede_target', v_arguments, v_result.outcome);
  return v_result;
end
$$;
comment on function relay_v1.supersede_target(text, text, text, int) is
  'Moves open migrations off a fenced dead target to another cell; ok with how many, or why not';
