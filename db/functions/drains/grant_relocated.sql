-- Promises a host that was relocated a seat on its new home, so that there is room when it asks.
-- Caller: evacuate_cell, supersede_target, which hold the host's row and the latch of the cell. Locks: the lease.
create or replace function relay.grant_relocated(p_host relay.assignment, p_cell_id text, p_epoch bigint, p_now timestamptz)
returns void
language plpgsql
as $$
declare
  v_ask relay.ask;
begin
  v_ask.user_id := p_host.user_id;
  v_ask.relay_host_id := p_host.relay_host_id;
  perform relay.grant_lease(v_ask, p_cell_id, p_epoch, p_now);
  update relay.assignment a
  set unattached_since = p_now
  where a.user_id = p_host.user_id and a.relay_host_id = p_host.relay_host_id;
end
$$;
