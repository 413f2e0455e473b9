-- Writes seats that a director booked, or read from a feed, into the rows of their hosts: only where the epoch is strictly
-- higher than the row's. The rows that are behind are found first; the others, which are nearly all, are not locked.
-- A row that says so already and shows no activity for an hour is stamped: a seat is activity, and one that was admitted
-- from memory has no lease to show it.
-- Caller: director, the ledger and its reconcile; at most 500 rows. Locks: the rows that are behind or due for a stamp, in
-- (user_id, relay_host_id) order; one that somebody else holds, or is making, is passed over.
-- Results: recorded (the row says so now, or did already), stale (the row has a higher epoch, or this one on another cell:
-- that seat is to be demoted), busy (locked: send it again). With the row as it is now; null when busy.
create or replace function relay_v1.record_seats(rows jsonb)
returns table (user_id text, relay_host_id text, result text, cell_id text, epoch bigint)
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_seat record;
  v_row relay.assignment;
  v_now timestamptz;
begin
  if jsonb_typeof(record_seats.rows) is distinct from 'array'
    or jsonb_array_length(record_seats.rows) > relay.limit_of('ledgerBatchRows') then
    perform relay.misuse(format('record_seats: rows is an array of at most %s', relay.limit_of('ledgerBatchRows')));
  elsif exists (
    select from jsonb_to_recordset(record_seats.rows) s (user_id text, relay_host_id text, cell_id text, epoch bigint)
    where num_nulls(s.user_id, s.relay_host_id, s.cell_id) > 0 or (s.epoch > 0) is not true) then
    perform relay.misuse('record_seats: a row is {user_id, relay_host_id, cell_id, epoch}');
  end if;
  for v_seat in
    select s.user_id, s.relay_host_id, s.cell_id, s.epoch, a.cell_id as row_cell_id, a.epoch as row_epoch
    from jsonb_to_recordset(record_seats.rows) s (user_id text, relay_host_id text, cell_id text, epoch bigint)
    left join relay.assignment a on a.user_id = s.user_id and a.relay_host_id = s.relay_host_id
    order by s.user_id, s.relay_host_id, s.epoch
  loop
    user_id := v_seat.user_id;
    relay_host_id := v_seat.relay_host_id;
    if v_seat.epoch > coalesce(v_seat.row_epoch, 0) then
      perform from relay.assignment a
      where a.user_id = v_seat.user_id and a.relay_host_id = v_seat.relay_host_id
      for no key update skip locked;
      v_now := coalesce(v_now, relay.now());
      if found then
        perform relay.record_seat(v_seat.user_id, v_seat.relay_host_id, v_seat.cell_id, v_seat.epoch, v_now);
      elsif v_seat.row_epoch is not null or not relay.record_first_seat(
        v_seat.user_id, v_seat.relay_host_id, v_seat.cell_id, v_seat.epoch, v_now) then
        result := 'busy';
        cell_id := null;
        epoch := null;
        return next;
        continue;
      end if;
    end if;
    -- as it is now: of two directors that booked one epoch the first writer wins
    select a.* into v_row from relay.assignment a
    where a.user_id = v_seat.user_id and a.relay_host_id = v_seat.relay_host_id;
    cell_id := v_row.cell_id;
    epoch := v_row.epoch;
    if (v_row.cell_id, v_row.epoch) = (v_seat.cell_id, v_seat.epoch) then
      result := 'recorded';
      perform relay.stamp_seat(v_row, coalesce(v_now, relay.now()));
    else
      result := 'stale';
    end if;
    return next;
  end loop;
end
$$;
comment on function relay_v1.record_seats(jsonb) is
  'Brings the rows of hosts to seats [{user_id, relay_host_id, cell_id, epoch}] with a higher epoch: recorded, stale or busy';
