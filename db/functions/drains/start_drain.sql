-- Tells the running process of a cell to let its hosts go: to tell them one by one over the pace, and to cut what they
-- still hold a grace after each was told. Pins the open migrations off the cell. A later order takes the place of an
-- earlier one. Never touches the heartbeat's `ready`.
-- Caller: operator. Locks: the cell, its latch (exclusive), its open migrations in (user_id, relay_host_id) order, as
-- the passes over many of them do.
-- Outcomes: ok, forbidden, cell_not_found, cell_in_reserve_mode (unless it is set apart for a roll),
-- drain_attempt_admission_enabled (it is general), source_cell_unavailable (it was never heard),
-- drain_migration_source_incarnation_mismatch (an open migration leaves an older process).
create or replace function relay_v1.start_drain(cell_id text, grace_ms int default 60000, pace_ms int default 60000)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(start_drain.cell_id, start_drain.grace_ms, start_drain.pace_ms);
  v_cell relay.cell;
  v_incarnation uuid;
  v_refusal text;
  v_now timestamptz;
begin
  if start_drain.grace_ms between 0 and relay.limit_of('maxGraceMs') is not true
    or start_drain.pace_ms between 0 and relay.limit_of('maxPaceMs') is not true then
    perform relay.misuse(format('start_drain: grace_ms is 0 to %s, pace_ms 0 to %s',
      relay.limit_of('maxGraceMs'), relay.limit_of('maxPaceMs')));
  elsif not relay.may_operate() then
    return relay.audit('start_drain', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(start_drain.cell_id);
  select r.incarnation into v_incarnation from relay.cell_runtime r where r.cell_id = start_drain.cell_id;
  v_now := relay.now();
  v_refusal := case
    when v_cell.cell_id is null then 'cell_not_found'
    when v_cell.admit_mode = 'reserve' and (v_now - v_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true
      then 'cell_in_reserve_mode'
    when v_cell.admission = 'general' then 'drain_attempt_admission_enabled'
    when v_incarnation is null then 'source_cell_unavailable'
    when exists (select from relay.migration m
      where m.source_cell = start_drain.cell_id and m.completed_at is null and m.aborted_at is null and m.pinned_at is null
        and m.source_incarnation is distinct from v_incarnation) then 'drain_migration_source_incarnation_mismatch'
  end;
  if v_refusal is not null then
    return relay.audit('start_drain', v_arguments, v_refusal);
  end if;
  with unpinned as materialized (
    select m.user_id, m.relay_host_id, m.epoch
    from relay.migration m
    where m.source_cell = start_drain.cell_id and m.completed_at is null and m.aborted_at is null and m.pinned_at is null
    order by m.user_id, m.relay_host_id
    for update
  )
  update relay.migration m
  set pinned_at = v_now
  from unpinned u
  where m.user_id = u.user_id and m.relay_host_id = u.relay_host_id and m.epoch = u.epoch;
  update relay.cell c
  set drain_incarnation = v_incarnation, drain_grace_ms = start_drain.grace_ms, drain_pace_ms = start_drain.pace_ms,
    drain_ordered_at = v_now,
    drain_hosts = (select count(*) from relay.lease l
      where l.cell_id = start_drain.cell_id and l.state <> 'retiring' and l.expires_at > v_now)
  where c.cell_id = start_drain.cell_id;
  perform relay.ring('drain', start_drain.cell_id, jsonb_build_object('state', 'ordered', 'incarnation', v_incarnation,
    'grace_ms', start_drain.grace_ms, 'pace_ms', start_drain.pace_ms), v_now);
  return relay.audit('start_drain', v_arguments, 'ok');
end
$$;
comment on function relay_v1.start_drain(text, int, int) is
  'Tells a cell to let its hosts go: told one by one over pace_ms, cut grace_ms after. ok, or why not';
