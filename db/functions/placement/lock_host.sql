-- Locks the row of a host, or makes it if the host is new, and holds the decision to it.
-- Raises RL103 if the host is not (any more) as decided. Null: no epoch can be minted yet.
-- Caller: attempt_assign. Locks: the host's row, ≤ 500 ms.
create or replace function relay.lock_host(
  p_ask relay.ask, p_decision relay.decision, p_target relay.target, p_now timestamptz)
returns bigint
language plpgsql
as $$
declare
  v_cell_id text;
  v_epoch bigint;
begin
  if p_decision.action = 'place' then
    v_epoch := relay.mint_epoch(0, p_ask.epoch_floor);
    if v_epoch is null then
      return null;
    end if;
    insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at, unattached_since,
      preferred_region, preferred_region_at)
    values (p_ask.user_id, p_ask.relay_host_id, p_target.cell_id, v_epoch, p_now, p_now, p_ask.preferred_region,
      case when p_ask.preferred_region is not null then p_now end)
    on conflict do nothing;
    if not found then
      raise exception using errcode = 'RL103', message = 'the host is not new any more';
    end if;
    return v_epoch;
  end if;
  select a.cell_id, a.epoch into v_cell_id, v_epoch
  from relay.assignment a
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id
  for no key update;
  if (v_cell_id, v_epoch) is distinct from (p_decision.cell_id, p_decision.epoch) then
    raise exception using errcode = 'RL103', message = 'the host was moved meanwhile';
  end if;
  return v_epoch;
end
$$;
