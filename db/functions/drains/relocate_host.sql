-- Gives a host another home that it did not ask for, at a new epoch. What it holds retires if a time is given; else it
-- ends at once, but for what retires already. Its open migration ends. No activity is stamped: the host showed none.
-- Caller: evacuate_cell, supersede_target, advance_migration, which hold the host's row. Locks: its leases, its migration.
-- Outcome: the epoch; null: none can be minted yet, and nothing is written.
create or replace function relay.relocate_host(
  p_host relay.assignment, p_cell_id text, p_rule text, p_retire_until timestamptz, p_now timestamptz)
returns bigint
language plpgsql
as $$
declare
  v_epoch constant bigint := relay.mint_epoch(p_host.epoch, null);
begin
  if v_epoch is null then
    return null;
  elsif p_retire_until is null then
    delete from relay.lease l
    where l.user_id = p_host.user_id and l.relay_host_id = p_host.relay_host_id and l.state <> 'retiring';
  else
    perform relay.retire_leases(p_host.user_id, p_host.relay_host_id, p_retire_until);
  end if;
  update relay.assignment a
  set cell_id = p_cell_id, epoch = v_epoch
  where a.user_id = p_host.user_id and a.relay_host_id = p_host.relay_host_id;
  perform relay.abort_migration(p_host.user_id, p_host.relay_host_id, v_epoch, p_now);
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, detail, at)
  values ('moved', p_host.cell_id, p_cell_id, p_host.user_id, p_host.relay_host_id, v_epoch, p_rule,
    jsonb_build_object('forced', p_retire_until is null, 'retire_until', (extract(epoch from p_retire_until) * 1000)::bigint),
    p_now);
  return v_epoch;
end
$$;
