-- What a cell carries: what its last heartbeat said, plus the unexpired leases which that cannot show yet (no process,
-- another process, or a higher watermark). One statement, because two around a heartbeat would count a host twice or
-- not at all. No row if the cell was never heard. A retiring lease counts only on the process it is on: nobody comes
-- back with it to another, and it may last as long as the grace of a drain, 1 h.
-- A set of one row, so that the planner takes it into the query that asks: a call a candidate costs ×2.
-- Four ranges of one index: a join or an `or` would walk all leases of the cell.
-- Caller: load, choose_target, target_room, explain_candidates, views. Locks: none.
create or replace function relay.cell_load(p_cell_id text, p_now timestamptz)
returns table (load int)
language sql stable
as $$
  select r.enforced_units
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation is null and l.expires_at > p_now and l.state <> 'retiring')
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation = r.incarnation and l.inclusion_watermark > r.inclusion_watermark
        and l.expires_at > p_now)
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation < r.incarnation and l.expires_at > p_now
        and l.state <> 'retiring')
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation > r.incarnation and l.expires_at > p_now
        and l.state <> 'retiring')
  from relay.cell_runtime r
  where r.cell_id = p_cell_id
$$;
