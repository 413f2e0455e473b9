-- Whether a cell is the source or the target of an open migration. Caller: set_admit_mode, retire_cell. Locks: none.
create or replace function relay.has_open_migration(p_cell_id text)
returns boolean
language plpgsql stable
as $$
begin
  return exists (select from relay.migration m
      where m.source_cell = p_cell_id and m.completed_at is null and m.aborted_at is null)
    or exists (select from relay.migration m
      where m.target_cell = p_cell_id and m.completed_at is null and m.aborted_at is null);
end
$$;
