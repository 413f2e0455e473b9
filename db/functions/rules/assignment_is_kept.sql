-- Refuses to delete assignments: a host that came back would start again at epoch 1, which was used before (P1).
-- SQLSTATE RL003. Caller: trigger on delete and truncate. Locks: none.
create or replace function relay.assignment_is_kept()
returns trigger
language plpgsql
set search_path = relay, pg_temp
as $$
begin
  raise exception using errcode = 'RL003', message = format('%s of assignments is refused', lower(tg_op)),
    hint = 'The epoch of a host must never repeat.';
end
$$;
