-- Renews the leases of the hosts of a cell, ≤ 200 a call. Reads and writes the leases alone: every writer of an
-- assignment ends the host's other leases in its own transaction, so a lease that is there is right.
-- A lease that has expired is renewed too: after an outage of the database the sockets are still there. The watermark
-- never rises, since what a heartbeat included once it goes on including.
-- Caller: cell, a batch a second at most. Locks: leases, skipped if locked.
-- Outcomes, a row each: renewed; retiring (with retire_until, and not renewed); control_activity_not_found;
-- lease_lock_unavailable; stale_cell_incarnation.
create or replace function relay_v1.renew_leases(cell_id text, incarnation uuid, leases jsonb)
returns table (user_id text, relay_host_id text, outcome text, lease_expires_at timestamptz, retire_until timestamptz)
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_current boolean := relay.is_incarnation(renew_leases.cell_id, renew_leases.incarnation);
begin
  if jsonb_array_length(renew_leases.leases) > relay.limit_of('renewalBatchRows') then
    perform relay.misuse(format('renew_leases: more than %s leases', relay.limit_of('renewalBatchRows')));
  end if;
  return query
  with asked as materialized (
    select q.*
    from jsonb_to_recordset(renew_leases.leases) as q (
      user_id text, relay_host_id text, epoch bigint, generation bigint, units int, inclusion_watermark bigint)
  ), there as (
    select l.user_id, l.relay_host_id, l.state, l.retire_until
    from asked q
    join relay.lease l on l.user_id = q.user_id and l.relay_host_id = q.relay_host_id
      and l.cell_id = renew_leases.cell_id and l.epoch = q.epoch and l.generation = q.generation
      and l.incarnation = renew_leases.incarnation
    where v_current
  ), locked as materialized (
    select l.user_id, l.relay_host_id, q.units, q.inclusion_watermark
    from asked q
    join relay.lease l on l.user_id = q.user_id and l.relay_host_id = q.relay_host_id
      and l.cell_id = renew_leases.cell_id and l.epoch = q.epoch and l.generation = q.generation
      and l.incarnation = renew_leases.incarnation and l.state = 'active'
    where v_current
    for update of l skip locked
  ), renewed as (
    update relay.lease l
    set expires_at = greatest(l.expires_at, v_now + relay.span_of('renewedLeaseMs')), units = k.units,
      inclusion_watermark = least(l.inclusion_watermark, k.inclusion_watermark)
    from locked k
    where l.user_id = k.user_id and l.relay_host_id = k.relay_host_id and l.cell_id = renew_leases.cell_id
    returning l.user_id, l.relay_host_id, l.expires_at
  )
  select q.user_id, q.relay_host_id,
    case
      when not v_current then 'stale_cell_incarnation'
      when n.user_id is not null then 'renewed'
      when t.state = 'retiring' then 'retiring'
      when t.user_id is not null then 'lease_lock_unavailable'
      else 'control_activity_not_found'
    end,
    n.expires_at, case when n.user_id is null then t.retire_until end
  from asked q
  left join there t on t.user_id = q.user_id and t.relay_host_id = q.relay_host_id
  left join renewed n on n.user_id = q.user_id and n.relay_host_id = q.relay_host_id;
end
$$;
comment on function relay_v1.renew_leases(text, uuid, jsonb) is 'Renews the leases of up to 200 hosts of a cell, an outcome each';
