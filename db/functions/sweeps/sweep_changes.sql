-- Prunes changes older than 15 min, oldest first, and moves the horizon in the same transaction: a cursor below it
-- resyncs. Caller: director, on a timer. Locks: changes, skipped if locked; setting. Outcome: changes deleted.
create or replace function relay_v1.sweep_changes(max_rows int default 10000)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_horizon bigint;
  v_pruned int;
begin
  with oldest as (
    select c.id, c.at from relay.change c order by c.id limit sweep_changes.max_rows
  ), doomed as materialized (
    select c.id
    from relay.change c
    join oldest o on o.id = c.id
    where o.at < v_now - relay.span_of('changeRetentionMs')
    for update of c skip locked
  ), gone as (
    delete from relay.change c using doomed d where c.id = d.id returning c.id
  )
  select count(*), max(g.id) into v_pruned, v_horizon from gone g;
  if v_pruned > 0 then
    update relay.setting s set changes_pruned_to = v_horizon where s.changes_pruned_to < v_horizon;
  end if;
  return v_pruned;
end
$$;
comment on function relay_v1.sweep_changes(int) is 'Prunes changes older than 15 min; answers how many';
