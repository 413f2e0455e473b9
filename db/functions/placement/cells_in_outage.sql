-- The cells that an outage is simulated of: those named, or those of a region. SQLSTATE RL001 if there is none, or one that
-- is not registered. Caller: simulate_outage. Locks: none.
create or replace function relay.cells_in_outage(p_cells text[], p_region text)
returns text[]
language plpgsql stable
as $$
declare
  v_dead constant text[] := array(
    select c.cell_id from relay.cell c where c.cell_id = any (p_cells) or c.region = p_region);
begin
  if p_cells <> '{}' and not p_cells <@ v_dead then
    perform relay.misuse('simulate_outage: no such cell: ' || array_to_string(
      array(select x from unnest(p_cells) x where x <> all (v_dead)), ', '));
  elsif v_dead = '{}' then
    perform relay.misuse('simulate_outage: cells, or the region of a cell, are needed');
  end if;
  return v_dead;
end
$$;
