-- Whether an open migration ties a host to its home at the epoch of its row: then only a fence sets it free.
-- Caller: decide_assign (rule 11), is_dead_reserve. Locks: none.
create or replace function relay.is_pinned(p_ask relay.ask, p_home relay.home)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.migration m
    where m.user_id = p_ask.user_id and m.relay_host_id = p_ask.relay_host_id
      and m.completed_at is null and m.aborted_at is null
      and m.pinned_at is not null and m.target_cell = p_home.cell_id and m.epoch = p_home.epoch);
end
$$;
