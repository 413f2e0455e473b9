-- Which cell a host is to dial, at which epoch. Decides unlocked, and returns at once if nothing is to be written: a row
-- lock on the sticky path costs ×3. Only a grant, a placement or a move locks, decides again and writes.
-- `place => false` writes no placement and no move, and answers would_place instead. `epoch_floor` is the highest epoch
-- that the director knows of the host, `seen` {cell_id, epoch} the newest seat on its map: the row is brought to it first.
-- `poll_evidence` is the second call's, after an answer with verdict_wanted: {cell_id, dead, evaluated_at = decided_at, …}.
-- Caller: director, for a host, a phone (resolve, invite), a sweep or an operator. Locks: see record_seen, attempt_assign.
-- Outcomes: granted, would_place, busy, unavailable (with cause), no_capacity, no_headroom; `rule` names the row of the
-- decision table.
create or replace function relay_v1.assign(
  user_id text, relay_host_id text, preferred_region text default null, requested_by text default 'host',
  epoch_floor bigint default null, poll_evidence jsonb default null, place boolean default true,
  seen jsonb default null)
returns relay_v1.assign_result
language plpgsql
security definer
set search_path = relay, pg_temp
-- every statement is a look-up by key: a plan made anew for each costs ×3
set plan_cache_mode = force_generic_plan
as $$
declare
  v_ask relay.ask;
  v_d relay.decision;
  v_now timestamptz;
begin
  if assign.user_id is null or assign.relay_host_id is null or assign.place is null
    or assign.requested_by not in ('host', 'resolve', 'invite', 'sweep', 'operator') is not false
    or length(assign.preferred_region) not between 1 and 128 then
    perform relay.misuse('assign: user_id, relay_host_id or place is missing, or requested_by or the region is none');
  end if;
  v_ask := (assign.user_id, assign.relay_host_id, assign.preferred_region, assign.requested_by, assign.epoch_floor,
    null, null, null, null);
  if assign.seen is not null or assign.poll_evidence is not null then
    v_ask := relay.read_hints(v_ask, assign.seen, assign.poll_evidence);
  end if;
  v_now := relay.now();
  v_d := relay.decide_assign(v_ask, relay.read_home(v_ask, v_now), v_now);
  if v_d.records and (assign.place or v_d.action in ('keep', 'refuse', 'grant')) then
    if not relay.record_seen(v_ask) then
      v_d.outcome := 'busy'; v_d.rule := 'row-busy';
      return relay.answer(v_d, relay.now());
    end if;
    v_now := relay.now();
    v_d := relay.decide_assign(v_ask, relay.read_home(v_ask, v_now), v_now);
  end if;
  if v_d.action in ('keep', 'refuse') then
    if v_d.stamp_due then
      perform relay.stamp_activity(v_ask, v_d, v_now);
    end if;
    return relay.answer(v_d, v_now);
  end if;
  return relay.apply_assign(v_ask, v_d, assign.place);
end
$$;
comment on function relay_v1.assign(text, text, text, text, bigint, jsonb, boolean, jsonb) is
  'Which cell a host is to dial, at which epoch; outcome, rule and cause from closed sets';
