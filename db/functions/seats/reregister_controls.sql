-- A cell that leaves reserve mode takes leases for the controls that it admitted from memory, up to 200 a call (90). A host
-- that cannot be had now is answered so, and waits for the next call.
-- Caller: cell. Locks: rows of hosts in (user_id, relay_host_id) order, each with its lease and its migration; passed over
-- if locked.
-- Outcomes, a row each. Leased: active. Refused by the row: no_assignment, behind (the ledger has yet to record this seat),
-- wrong_cell, wrong_epoch. Not needed: superseded (a newer control of the host here holds the lease). To be tried again:
-- busy. The process leaves: stale_cell_incarnation.
create or replace function relay_v1.reregister_controls(cell_id text, incarnation uuid, controls jsonb)
returns table (user_id text, relay_host_id text, epoch bigint, generation bigint, outcome text, lease_expires_at timestamptz)
language plpgsql
security definer
set search_path = relay, pg_temp
set lock_timeout = '500ms'
as $$
declare
  v_control relay.control;
begin
  if jsonb_typeof(reregister_controls.controls) is distinct from 'array'
    or jsonb_array_length(reregister_controls.controls) > relay.limit_of('renewalBatchRows') then
    perform relay.misuse(format('reregister_controls: controls is an array of at most %s', relay.limit_of('renewalBatchRows')));
  elsif exists (
    select from jsonb_populate_recordset(null::relay.control, reregister_controls.controls) q
    where num_nulls(q.user_id, q.relay_host_id, q.epoch, q.generation, q.units, q.inclusion_watermark) > 0) then
    perform relay.misuse(
      'reregister_controls: a control is {user_id, relay_host_id, epoch, generation, units, inclusion_watermark}');
  end if;
  for v_control in
    select q.*
    from jsonb_populate_recordset(null::relay.control, reregister_controls.controls) q
    order by q.user_id, q.relay_host_id, q.generation
  loop
    user_id := v_control.user_id;
    relay_host_id := v_control.relay_host_id;
    epoch := v_control.epoch;
    generation := v_control.generation;
    select r.* into outcome, lease_expires_at
    from relay.reregister_control(reregister_controls.cell_id, reregister_controls.incarnation, v_control) r;
    return next;
  end loop;
end
$$;
comment on function relay_v1.reregister_controls(text, uuid, jsonb) is
  'Takes leases for up to 200 controls that a cell admitted from memory, an outcome each';
