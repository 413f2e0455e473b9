-- How the running process of a cell says that it admits hosts: db, reserve, or null. A process that is not heard says
-- nothing. Caller: admit_mode_refusal, flags_refusal. Locks: none.
create or replace function relay.effective_mode(p_cell_id text, p_now timestamptz)
returns text
language plpgsql stable
as $$
begin
  return (
    select e.mode
    from relay.cell_effective_mode e
    join relay.cell_runtime r on r.cell_id = e.cell_id and r.incarnation = e.incarnation
    where e.cell_id = p_cell_id and r.heard_at > p_now - relay.span_of('heartbeatTtlMs'));
end
$$;
