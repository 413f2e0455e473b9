-- A cell says how its process really admits hosts: at every change, and every 15 s while its flags say reserve. On the way
-- back to db it says, too, how many of its controls have no lease yet: it admits from memory until that is none.
-- Caller: cell. Locks: its own row. Outcomes: ok, stale_cell_incarnation (another process was heard last).
create or replace function relay_v1.record_effective_mode(cell_id text, incarnation uuid, mode text, unleased int default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
begin
  if record_effective_mode.mode in ('db', 'reserve') is not true then
    perform relay.misuse('record_effective_mode: mode is db or reserve');
  elsif record_effective_mode.unleased < 0 then
    perform relay.misuse('record_effective_mode: unleased is a count');
  elsif not relay.is_incarnation(record_effective_mode.cell_id, record_effective_mode.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  return case
    when relay.write_effective_mode(record_effective_mode.cell_id, record_effective_mode.incarnation,
      record_effective_mode.mode, record_effective_mode.unleased, relay.now()) then 'ok'
    else 'stale_cell_incarnation'
  end;
end
$$;
comment on function relay_v1.record_effective_mode(text, uuid, text, int) is
  'A cell says how its process really admits hosts: db or reserve';
