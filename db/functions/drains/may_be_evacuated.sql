-- Whether a host can be moved off a cell that is evacuated: not while it is on its way there, having been promised a seat,
-- and not before an earlier migration is done. Caller: evacuate_cell, evacuate_host. Locks: none.
create or replace function relay.may_be_evacuated(p_host relay.assignment, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return not exists (
      select from relay.migration m
      where m.user_id = p_host.user_id and m.relay_host_id = p_host.relay_host_id
        and m.completed_at is null and m.aborted_at is null)
    and not exists (
      select from relay.lease l
      where l.user_id = p_host.user_id and l.relay_host_id = p_host.relay_host_id and l.cell_id = p_host.cell_id
        and l.epoch = p_host.epoch and l.state = 'granted' and l.expires_at > p_now);
end
$$;
