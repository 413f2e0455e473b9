-- Marks, completes, gives up or takes back the open migrations for which it is time, and deletes those that ended and are
-- older than 7 d. Caller: director, on a timer. Locks: rows of hosts, then migrations, both skipped if locked; see
-- advance_migration. Outcome: migrations that ended.
create or replace function relay_v1.sweep_migrations(max_rows int default 500)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_host record;
  v_ended int := 0;
begin
  for v_host in
    with due as materialized (
      select m.user_id, m.relay_host_id
      from relay.migration m
      where m.completed_at is null and m.aborted_at is null and relay.migration_step(m, v_now) <> 'wait'
      limit sweep_migrations.max_rows
    )
    select a.user_id, a.relay_host_id
    from relay.assignment a
    where (a.user_id, a.relay_host_id) in (select d.user_id, d.relay_host_id from due d)
    order by a.user_id, a.relay_host_id
    for no key update skip locked
  loop
    v_ended := v_ended + relay.advance_migration(v_host.user_id, v_host.relay_host_id)::int;
  end loop;
  with old as materialized (
    select m.user_id, m.relay_host_id, m.epoch
    from relay.migration m
    where m.opened_at < v_now - relay.span_of('migrationRetentionMs')
      and num_nonnulls(m.completed_at, m.aborted_at) > 0
    limit sweep_migrations.max_rows
    for update skip locked
  )
  delete from relay.migration m
  using old o
  where m.user_id = o.user_id and m.relay_host_id = o.relay_host_id and m.epoch = o.epoch;
  return v_ended;
end
$$;
comment on function relay_v1.sweep_migrations(int) is 'Ends the open migrations for which it is time; answers how many';
