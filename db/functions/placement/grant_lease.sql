-- Gives a host a lease on a cell, in place of what it may still hold there.
-- Caller: attempt_assign, write_move, which hold the host's row and the cell's latch. Locks: the lease. Outcome: its end.
create or replace function relay.grant_lease(p_ask relay.ask, p_cell_id text, p_epoch bigint, p_now timestamptz)
returns timestamptz
language plpgsql
as $$
declare
  v_expires_at constant timestamptz := p_now + relay.span_of('grantLeaseMs');
begin
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, state, units, expires_at)
  values (p_ask.user_id, p_ask.relay_host_id, p_cell_id, p_epoch, 'granted', relay.limit_of('controlUnits'), v_expires_at)
  on conflict on constraint lease_pkey do update
  set epoch = excluded.epoch, state = 'granted', units = excluded.units, expires_at = excluded.expires_at,
    incarnation = null, generation = null, inclusion_watermark = null, retire_until = null;
  return v_expires_at;
end
$$;
