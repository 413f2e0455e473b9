-- Stamps that a host which a feed shows seated at its row was active; at most once an hour a host, and a stamp that somebody
-- else's lock prevents comes with the next reconcile.
-- Caller: record_seats, with the row as it read it. Locks: the host's row if it is due, skipped if locked.
create or replace function relay.stamp_seat(p_row relay.assignment, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  if p_row.last_activity_at > p_now - relay.span_of('seatStampIntervalMs') then
    return;
  end if;
  update relay.assignment a
  set last_activity_at = p_now
  from (
    select x.user_id, x.relay_host_id
    from relay.assignment x
    where x.user_id = p_row.user_id and x.relay_host_id = p_row.relay_host_id
      and x.cell_id = p_row.cell_id and x.epoch = p_row.epoch
    for no key update skip locked
  ) mine
  where a.user_id = mine.user_id and a.relay_host_id = mine.relay_host_id;
end
$$;
