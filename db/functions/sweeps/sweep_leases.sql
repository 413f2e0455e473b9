-- Deletes expired leases, and stamps the end of each on the row of its host if the row is still of its cell and epoch.
-- Caller: director, on a timer. Locks: rows of hosts, then leases; both skipped if locked. Outcome: leases deleted.
create or replace function relay_v1.sweep_leases(max_rows int default 1000)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_swept int;
begin
  with expired as (
    select l.user_id, l.relay_host_id, l.cell_id
    from relay.lease l
    where l.expires_at <= v_now
    limit sweep_leases.max_rows
  ), host as materialized (
    select a.user_id, a.relay_host_id
    from relay.assignment a
    where (a.user_id, a.relay_host_id) in (select x.user_id, x.relay_host_id from expired x)
    order by a.user_id, a.relay_host_id
    for no key update skip locked
  ), doomed as materialized (
    select l.user_id, l.relay_host_id, l.cell_id
    from host h
    join relay.lease l on l.user_id = h.user_id and l.relay_host_id = h.relay_host_id
    where l.expires_at <= v_now
    for update of l skip locked
  ), gone as (
    delete from relay.lease l
    using doomed d
    where l.user_id = d.user_id and l.relay_host_id = d.relay_host_id and l.cell_id = d.cell_id
    returning l.user_id, l.relay_host_id, l.cell_id, l.epoch, l.expires_at
  ), stamped as (
    update relay.assignment a
    set last_activity_at = greatest(a.last_activity_at, g.expires_at)
    from gone g
    where a.user_id = g.user_id and a.relay_host_id = g.relay_host_id and a.cell_id = g.cell_id and a.epoch = g.epoch
  ), told as (
    insert into relay.change (kind, from_cell, user_id, relay_host_id, epoch, detail, at)
    select 'lease_ended', g.cell_id, g.user_id, g.relay_host_id, g.epoch, '{"reason": "expired"}', v_now
    from gone g
  )
  select count(*) into v_swept from gone;
  return v_swept;
end
$$;
comment on function relay_v1.sweep_leases(int) is 'Deletes expired leases; answers how many';
