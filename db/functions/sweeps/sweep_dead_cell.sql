-- One pass over the hosts of one fenced cell. A host that is locked or for which assign is busy is left for a later pass;
-- without room in the fleet the pass ends. Caller: sweep_dead_cells. Locks: rows of hosts, skipped if locked; then see
-- assign. Outcome: hosts moved.
create or replace function relay.sweep_dead_cell(p_cell_id text, p_max_hosts int)
returns int
language plpgsql
as $$
declare
  v_host record;
  v_answer relay_v1.assign_result;
  v_moved int := 0;
  v_share int;
begin
  select least(p_max_hosts, ceil(count(*) * relay.limit_of('deadCellSweepPercent') / 100.0))::int into v_share
  from relay.assignment a
  where a.cell_id = p_cell_id;
  for v_host in
    with drawn as materialized (
      select a.user_id, a.relay_host_id from relay.assignment a where a.cell_id = p_cell_id order by random() limit v_share
    )
    select a.user_id, a.relay_host_id
    from drawn d
    join relay.assignment a on a.user_id = d.user_id and a.relay_host_id = d.relay_host_id and a.cell_id = p_cell_id
    for no key update of a skip locked
  loop
    v_answer := relay_v1.assign(v_host.user_id, v_host.relay_host_id, requested_by => 'sweep');
    v_moved := v_moved + v_answer.moved::int;
    exit when v_answer.outcome = 'no_capacity';
  end loop;
  return v_moved;
end
$$;
