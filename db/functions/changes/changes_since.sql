-- The changes after a cursor {timeline, max_id, gaps}, a page of them, and the next cursor. A null cursor starts at the
-- head: whoever takes it first and reads the state afterwards misses nothing. `cell_id` filters to what concerns a cell.
-- Caller: director (every 250 ms), cell (every second), both on a doorbell. Locks: none.
-- `resync` says why the reader must read its state anew: start; timeline (another server, ids may repeat); pruned (the
-- cursor is below what is kept); ahead (beyond the head: commits were lost). Then the cursor is a fresh one.
create or replace function relay_v1.changes_since(
  cursor jsonb default null, cell_id text default null, max_rows int default 1000)
returns jsonb
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  c_resync_ids constant int := 10000;
  v_timeline constant bigint := relay.timeline();
  v_max_rows constant int := least(greatest(changes_since.max_rows, 1), 10000);
  v_max_id constant bigint := (changes_since.cursor ->> 'max_id')::bigint;
  v_pruned bigint;
  v_head bigint;
  v_resync text;
  v_gaps bigint[];
begin
  select s.changes_pruned_to, greatest(s.changes_pruned_to, (select max(c.id) from relay.change c))
  into v_pruned, v_head
  from relay.setting s;
  v_resync := case
    when v_max_id is null then 'start'
    when (changes_since.cursor ->> 'timeline')::bigint is distinct from v_timeline then 'timeline'
    when v_max_id < v_pruned then 'pruned'
    when v_max_id > v_head then 'ahead'
  end;
  if v_resync is null then
    v_gaps := array(select g::bigint from jsonb_array_elements_text(changes_since.cursor -> 'gaps') g);
    return relay.changes_page(v_timeline, v_max_id, v_gaps, changes_since.cell_id, v_max_rows);
  end if;
  -- From the head, with the latest skipped ids as gaps: they may belong to transactions that are open now, and would
  -- be lost. As many as are given while the longest one lasts, whatever a page holds. No cell is named '': no row is read out.
  return relay.changes_page(v_timeline, greatest(v_pruned, v_head - c_resync_ids), '{}', '', c_resync_ids)
    || jsonb_build_object('resync', v_resync, 'more', false);
end
$$;
comment on function relay_v1.changes_since(jsonb, text, int) is
  'A page of changes after a cursor, the next cursor, and whether the reader must read its state anew';
