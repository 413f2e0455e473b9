-- Refuses an assignment whose epoch falls, or whose cell changes without a higher epoch (P1, P2). SQLSTATE RL002.
-- Caller: trigger, whose condition is the rule. Locks: none.
create or replace function relay.assignment_is_monotonic()
returns trigger
language plpgsql
set search_path = relay, pg_temp
as $$
begin
  raise exception using errcode = 'RL002',
    message = format('epoch %s on %s may not follow epoch %s on %s', new.epoch, new.cell_id, old.epoch, old.cell_id),
    hint = 'An epoch never falls, and a host changes its cell only together with a higher epoch.';
end
$$;
