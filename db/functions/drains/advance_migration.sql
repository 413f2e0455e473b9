-- Does what is due about the open migration of a host: settles it, gives it up, or takes the host back to the source.
-- True if it ended. Caller: sweep_migrations, which holds the host's row. Locks: the migration; the source's latch,
-- shared, only tried: an operator who is changing the source comes first.
create or replace function relay.advance_migration(p_user_id text, p_relay_host_id text)
returns boolean
language plpgsql
as $$
declare
  v_step constant text := relay.settle_migration(p_user_id, p_relay_host_id, relay.now());
  v_migration relay.migration;
  v_host relay.assignment;
  v_now timestamptz;
begin
  if v_step is null or v_step in ('wait', 'register') then
    return v_step is null;
  end if;
  select m.* into v_migration
  from relay.migration m
  where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.completed_at is null and m.aborted_at is null;
  if v_step = 'roll-back' then
    if not exists (select from relay.cell c
      where c.cell_id = v_migration.source_cell and pg_try_advisory_xact_lock_shared(relay.latch_space(), c.latch)) then
      return false;
    end if;
    v_now := relay.now();
    if relay.migration_step(v_migration, v_now) = 'roll-back' then
      select a.* into v_host from relay.assignment a where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id;
      return relay.relocate_host(v_host, v_migration.source_cell, 'rolled-back', null, v_now) is not null;
    end if;
    return false;
  end if;
  perform relay.abort_migration(p_user_id, p_relay_host_id, v_migration.epoch + 1, relay.now());
  return true;
end
$$;
