-- Writes a grant, a placement or a move: picks a target, attempts, and when the world has changed meanwhile decides
-- again or goes on to another target. Each attempt is a subtransaction, so that a failed one leaves no lock behind.
-- Caller: assign. Locks: as attempt_assign; each waited for ≤ 500 ms.
-- Outcomes: granted; busy (row-busy: the host's row or a latch was not had in time; latch-busy: a cell with room was
-- skipped for its latch, or the host changed at every look); no_capacity; or what was decided on the second look.
create or replace function relay.apply_assign(p_ask relay.ask, p_decision relay.decision, p_place boolean)
returns relay_v1.assign_result
language plpgsql
set lock_timeout = '500ms'
as $$
declare
  v_d relay.decision := p_decision;
  v_target relay.target;
  v_excluded text[] := array[]::text[];
  v_skipped boolean := false;
  v_changed boolean := false;
  v_now timestamptz;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform relay.misuse('assign needs isolation level read committed');
  end if;
  for v_try in 1 .. 4 loop
    if v_d.action in ('keep', 'refuse') or not p_place and v_d.action <> 'grant' then
      return relay.answer(v_d, relay.now());
    end if;
    v_target := null;
    if v_d.action in ('place', 'move') then
      v_target := relay.choose_target(v_d.target_region, array_append(v_excluded, coalesce(v_d.excluded, '')), relay.now());
      if v_target.cell_id is null then
        exit when v_skipped;
        v_d := relay.without_target(v_d);
        continue when v_d.action <> 'grant';
      end if;
    end if;
    begin
      return relay.attempt_assign(p_ask, v_d, v_target, v_try = 1);
    exception
      when lock_not_available or deadlock_detected then
        v_d.outcome := 'busy'; v_d.rule := 'row-busy';
        return relay.answer(v_d, relay.now());
      when sqlstate 'RL101' or sqlstate 'RL102' then
        v_skipped := v_skipped or sqlstate = 'RL102';
        v_excluded := array_append(v_excluded, coalesce(v_target.cell_id, ''));
      when sqlstate 'RL103' then
        v_changed := true;
    end;
    v_now := relay.now();
    v_d := relay.decide_assign(p_ask, relay.read_home(p_ask, v_now), v_now);
  end loop;
  if not v_skipped and not v_changed and v_d.action in ('place', 'move') then
    return relay.answer(relay.without_target(v_d), relay.now());
  end if;
  v_d.outcome := 'busy'; v_d.rule := 'latch-busy';
  return relay.answer(v_d, relay.now());
end
$$;
