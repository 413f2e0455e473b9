-- Above which every epoch lies that is minted from now on, whatever a row says: a failover may have lost what it said (P1).
-- Null on a timeline for which no heartbeat has raised it yet, as mint_epoch has it.
-- Caller: director, which mints for bookings itself; after it has read the row. Locks: none.
create or replace function relay_v1.epoch_base()
returns bigint
language sql stable
security definer
set search_path = relay, pg_temp
as $$
  select s.epoch_base from relay.setting s where s.timeline = relay.timeline()
$$;
comment on function relay_v1.epoch_base() is
  'Above which every new epoch lies since the last failover; null until a heartbeat has raised it there';
