-- One attempt to write what was decided unlocked: locks, decides again, and applies only what was decided before.
-- Caller: apply_assign, in a subtransaction that a raise undoes, locks included.
-- Locks: the host's row, the latches of home and target (ascending), then the host's leases and migration.
-- Outcomes: granted, busy (rule timeline: no heartbeat since a failover). Raises RL101: the target has no room (any
-- more); RL102: its latch is taken, or was taken in the wrong mode; RL103: the decision no longer stands.
create or replace function relay.attempt_assign(
  p_ask relay.ask, p_decision relay.decision, p_target relay.target, p_wait boolean)
returns relay_v1.assign_result
language plpgsql
as $$
declare
  v_d relay.decision := p_decision;
  v_target relay.target := p_target;
  v_result relay_v1.assign_result;
  v_now timestamptz := relay.now();
  v_shared boolean;
  v_free int;
  v_mints boolean;
begin
  v_result.epoch := relay.lock_host(p_ask, p_decision, p_target, v_now);
  if v_result.epoch is not null then
    v_shared := relay.take_latches(p_decision, p_target, p_wait);
    v_now := relay.now();
    if p_decision.action <> 'place' then
      v_d := relay.decide_assign(p_ask, relay.read_home(p_ask, v_now), v_now);
      if p_target.cell_id is null then
        v_d := relay.without_target(v_d);
        v_target := (v_d.cell_id, v_d.latch, v_d.cell_url, v_d.region, v_d.free_units);
      end if;
      if (v_d.action, v_d.rule) is distinct from (p_decision.action, p_decision.rule) then
        raise exception using errcode = 'RL103', message = 'the decision no longer stands';
      end if;
    end if;
    v_free := case when p_target.cell_id is null then v_d.free_units else relay.target_room(p_target.cell_id, v_now) end;
    if v_free > 0 is not true then
      raise exception using errcode = 'RL101', message = 'the target has no room';
    elsif v_shared and v_free <= relay.limit_of('skipSharedLatchBelowUnits') then
      raise exception using errcode = 'RL102', message = 'nearly full, and latched shared';
    end if;
    -- a dormant host may find its home the best cell, and is kept there
    v_mints := v_d.action = 'remint' or v_d.action = 'move' and (v_target.cell_id <> v_d.cell_id or v_d.rule = 'behind');
    if v_mints then
      v_result.epoch := relay.write_move(p_ask, v_d, v_target, v_now);
    end if;
  end if;
  if v_result.epoch is null then
    return ('busy', 'timeline', null, null, null, null, null, null, false, null, false, v_now)::relay_v1.assign_result;
  end if;
  v_result.outcome := 'granted'; v_result.rule := v_d.rule;
  v_result.cell_id := v_target.cell_id; v_result.cell_url := v_target.url; v_result.region := v_target.region;
  v_result.moved := v_d.action = 'move' and v_target.cell_id <> v_d.cell_id;
  v_result.from_cell_id := case when v_result.moved then v_d.cell_id end;
  v_result.verdict_wanted := false;
  v_result.decided_at := v_now;
  v_result.lease_expires_at := relay.grant_lease(p_ask, v_result.cell_id, v_result.epoch, v_now);
  if v_mints is not true then
    perform relay.note_grant(p_ask, v_result, v_d.action = 'place');
  end if;
  return v_result;
end
$$;
