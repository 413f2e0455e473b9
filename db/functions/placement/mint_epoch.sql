-- The epoch of a host that is placed or moved: above its row, above every epoch that the caller knows (the floor), and
-- above all that may have been given before a failover lost commits (P1). A new host starts at 1.
-- Without a floor while a cell is in reserve mode: 1000 above, past anything booked and not yet recorded.
-- Null on a timeline for which no heartbeat has raised the base yet: the caller answers busy.
-- Caller: every function that places or moves a host. Locks: none.
create or replace function relay.mint_epoch(p_row_epoch bigint, p_floor bigint)
returns bigint
language plpgsql stable
as $$
declare
  v_timeline bigint;
  v_base bigint;
  v_blind boolean;
begin
  select s.timeline, s.epoch_base, p_floor is null and exists (select from relay.cell c where c.admit_mode = 'reserve')
  into v_timeline, v_base, v_blind
  from relay.setting s;
  if v_timeline <> relay.timeline() then
    return null;
  end if;
  return greatest(p_row_epoch, p_floor, v_base) + case when v_blind then relay.limit_of('epochJump') else 1 end;
end
$$;
