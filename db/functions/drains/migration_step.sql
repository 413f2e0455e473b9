-- What is to be done about an open migration now. First match wins; reads, and neither writes nor locks.
-- Caller: settle_migration, advance_migration under the host's row; sweep_migrations unlocked, to find those that are due.
-- Locks: none.
--
-- | # | step      | when                                                                                             |
-- |---|-----------|--------------------------------------------------------------------------------------------------|
-- | 1 | overtaken | the host's row is no longer at the migration's epoch, which belongs to one cell (P2)             |
-- | 2 | register  | the host is seated on the target, and that is not written down                                   |
-- | 3 | complete  | it is seated on the target and has left the source                                               |
-- | 4 | wait      | less than 15 min old; or pinned or registered, less than 24 h old, and the source is not fenced  |
-- | 5 | wait      | it holds something on the target (it may be on its way), or has not left the source              |
-- | 6 | complete  | it was registered once                                                                           |
-- | 7 | roll-back | the source is live, general, in db mode and not draining                                         |
-- | 8 | give-up   | otherwise: the host stays where its row is                                                       |
-- It has left the source when no running process holds its lease there: the lease is gone or expired, another process
-- was heard since, or the source is fenced.
create or replace function relay.migration_step(p_migration relay.migration, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_held text;
  v_left boolean;
begin
  if not exists (select from relay.assignment a
    where a.user_id = p_migration.user_id and a.relay_host_id = p_migration.relay_host_id
      and a.epoch = p_migration.epoch) then
    return 'overtaken';
  end if;
  select l.state into v_held
  from relay.lease l
  where l.user_id = p_migration.user_id and l.relay_host_id = p_migration.relay_host_id
    and l.cell_id = p_migration.target_cell and l.epoch = p_migration.epoch and l.expires_at > p_now;
  if v_held = 'active' and p_migration.registered_at is null then
    return 'register';
  end if;
  v_left := not exists (
      select from relay.lease l
      join relay.cell_runtime r on r.cell_id = l.cell_id and r.incarnation = l.incarnation
      where l.user_id = p_migration.user_id and l.relay_host_id = p_migration.relay_host_id
        and l.cell_id = p_migration.source_cell and l.expires_at > p_now)
    or relay.is_fenced(p_migration.source_cell, p_now);
  if v_held = 'active' and v_left then
    return 'complete';
  elsif p_migration.expires_at > p_now
    or num_nonnulls(p_migration.pinned_at, p_migration.registered_at) > 0
      and p_migration.opened_at > p_now - relay.span_of('migrationAbandonedMs')
      and not relay.is_fenced(p_migration.source_cell, p_now)
    or v_held is not null or not v_left then
    return 'wait';
  elsif p_migration.registered_at is not null then
    return 'complete';
  end if;
  return case when exists (
    select from relay.cell c
    join relay.cell_runtime r on r.cell_id = c.cell_id
    where c.cell_id = p_migration.source_cell and relay.target_rejection(c, r, p_now) is null and c.admit_mode = 'db')
    then 'roll-back' else 'give-up' end;
end
$$;
