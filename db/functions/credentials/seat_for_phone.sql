-- Where a phone finds its host, seen from one cell: the host's row against the seats that the cell holds.
-- Caller: open_connection. Locks: none: a move that commits now reaches the cell through the change log.
-- First match wins.
-- | place     | when                                                                                           |
-- |-----------|------------------------------------------------------------------------------------------------|
-- | attached  | the row names this cell and exactly the epoch of the host's seat on it                         |
-- | attached  | the cell is recorded as reserve, and its seat is newer than the row: the ledger is on its way   |
-- | detached  | the row names this cell, and the host has no active control on it                              |
-- | elsewhere | otherwise: no row; or it names another cell; or a seat here has another epoch                  |
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
  epoch := greatest(v_row.epoch, v_seat_epoch);
  place := case
    when v_row.cell_id = p_cell_id and v_seat_epoch = v_row.epoch then 'attached'
    when v_seat_epoch > coalesce(v_row.epoch, 0)
      and exists (select from relay.cell c where c.cell_id = p_cell_id and c.admit_mode = 'reserve') then 'attached'
    when v_row.cell_id = p_cell_id and v_seat_epoch is null then 'detached'
    else 'elsewhere'
  end;
  if place = 'detached' then
    if v_row.last_close_reason_at > p_now - relay.span_of('hostCloseReasonTtlMs') then
      close_reason := v_row.last_close_reason;
    end if;
  elsif place = 'attached' then
    select l.expires_at into lease_expires_at from relay.lease l
    where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id and l.cell_id = p_cell_id and l.epoch = seat_for_phone.epoch
      and l.expires_at > p_now;
    lease_expires_at := coalesce(lease_expires_at, p_now + relay.span_of('grantLeaseMs'));
  end if;
end
$$;
