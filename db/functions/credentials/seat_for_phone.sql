-- Where a phone finds its host, seen from one cell: the host's row against the seats that the cell holds.
-- Caller: open_connection. Locks: none: a move that commits now reaches the cell through the change log.
-- | place     | when                                                                   |
-- |-----------|------------------------------------------------------------------------|
-- | elsewhere | no row; or it names another cell; or a seat here has another epoch     |
-- | detached  | the row names this cell, and the host has no active control on it      |
-- | attached  | the row names this cell and exactly the epoch of the host's seat on it |
-- A seat newer than its row is one that the ledger has not recorded yet: needs reserve mode.
-- lease_expires_at: when attached, the end of the host's lease here. A control whose renewals were missed is one all the
-- same (the cell renews or closes it): then what a grant of now would have, as resolve answers.
-- close_reason: when detached, what the host said as it left, for 24 h.
create or replace function relay.seat_for_phone(
  p_user_id text, p_relay_host_id text, p_cell_id text, p_seats jsonb, p_now timestamptz,
  out place text, out epoch bigint, out lease_expires_at timestamptz, out close_reason text)
language plpgsql stable
as $$
declare
  v_row relay.assignment;
  v_seat_epoch bigint;
begin
  select a.* into v_row from relay.assignment a where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id;
  select s.epoch into v_seat_epoch from jsonb_to_recordset(p_seats) as s(user_id text, epoch bigint)
  where s.user_id = p_user_id
  order by s.epoch desc limit 1;
  epoch := v_row.epoch;
  if v_row.cell_id is distinct from p_cell_id or v_seat_epoch <> v_row.epoch then
    place := 'elsewhere';
  elsif v_seat_epoch is null then
    place := 'detached';
    if v_row.last_close_reason_at > p_now - relay.span_of('hostCloseReasonTtlMs') then
      close_reason := v_row.last_close_reason;
    end if;
  else
    place := 'attached';
    select l.expires_at into lease_expires_at from relay.lease l
    where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id and l.cell_id = p_cell_id and l.epoch = v_row.epoch
      and l.expires_at > p_now;
    lease_expires_at := coalesce(lease_expires_at, p_now + relay.span_of('grantLeaseMs'));
  end if;
end
$$;
