-- How the migrations off a cell stand, to one target or to all; those that ended count for 7 d.
-- Caller: operator. Locks: none. Outcomes, in `outcome`: ok, forbidden, cell_not_found.
create or replace function relay_v1.migration_status(source text, target text default null)
returns jsonb
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(migration_status.source, migration_status.target);
  v_now timestamptz := relay.now();
begin
  if not relay.may_operate() then
    return jsonb_build_object('outcome', relay.audit('migration_status', v_arguments, 'forbidden'));
  elsif not exists (select from relay.cell c where c.cell_id = migration_status.source) then
    return jsonb_build_object('outcome', relay.audit('migration_status', v_arguments, 'cell_not_found'));
  end if;
  return jsonb_build_object('outcome', relay.audit('migration_status', v_arguments, 'ok'),
    'hosts_on_source', (select count(*) from relay.assignment a where a.cell_id = migration_status.source)) || (
    select jsonb_build_object(
      'open', count(*) filter (where x.open),
      'pinned', count(*) filter (where x.open and x.pinned_at is not null),
      'registered', count(*) filter (where x.open and x.registered_at is not null),
      'expired', count(*) filter (where x.open and x.expires_at <= v_now),
      'oldest_opened_at', min(x.opened_at) filter (where x.open),
      'completed', count(*) filter (where x.completed_at is not null),
      'aborted', count(*) filter (where x.aborted_at is not null))
    from (
      select m.*, m.completed_at is null and m.aborted_at is null as open
      from relay.migration m
      where m.source_cell = migration_status.source
        and (migration_status.target is null or m.target_cell = migration_status.target)
    ) x);
end
$$;
comment on function relay_v1.migration_status(text, text) is 'How the migrations off a cell stand, as JSON with an outcome';
