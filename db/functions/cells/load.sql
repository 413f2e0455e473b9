-- What a cell carries (cell_load), as a number; null if the cell was never heard.
-- Caller: decide_assign. Locks: none.
create or replace function relay.load(p_cell_id text, p_now timestamptz)
returns int
language plpgsql stable
as $$
begin
  return (select n.load from relay.cell_load(p_cell_id, p_now) n);
end
$$;
