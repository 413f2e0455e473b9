-- Brings the row of one host to a seat that a director knows, as the ledger does: only if its epoch is strictly higher.
-- A host that is seated is attached; what it held elsewhere ends, and so do its migrations of older epochs.
-- Caller: record_seen, record_seats, which hold the host's row if there is one. Locks: the host's row, its leases, its
-- migration. Outcome: whether anything was written.
create or replace function relay.record_seat(
  p_user_id text, p_relay_host_id text, p_cell_id text, p_epoch bigint, p_now timestamptz)
returns boolean
language plpgsql
as $$
declare
  v_from_cell text;
begin
  select a.cell_id into v_from_cell
  from relay.assignment a
  where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id;
  insert into relay.assignment as a (user_id, relay_host_id, cell_id, epoch, last_activity_at)
  values (p_user_id, p_relay_host_id, p_cell_id, p_epoch, p_now)
  on conflict on constraint assignment_pkey do update
  set cell_id = excluded.cell_id, epoch = excluded.epoch, last_activity_at = excluded.last_activity_at,
    unattached_since = null
  where a.epoch < excluded.epoch;
  if not found then
    return false;
  end if;
  delete from relay.lease l where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id;
  perform relay.abort_migration(p_user_id, p_relay_host_id, p_epoch, p_now);
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, detail, at)
  values ('recorded', v_from_cell, p_cell_id, p_user_id, p_relay_host_id, p_epoch, '{"forced": true}', p_now);
  return true;
end
$$;
