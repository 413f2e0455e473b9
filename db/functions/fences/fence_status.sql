-- The fence of a cell, its last attempts, newest first, and who holds the fleet's mutation lease.
-- Caller: operator. Locks: none. Outcomes, in `outcome`: ok, forbidden, cell_not_found.
create or replace function relay_v1.fence_status(cell_id text)
returns jsonb
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  c_attempts constant int := 10;
  v_arguments jsonb := jsonb_build_array(fence_status.cell_id);
  v_now timestamptz := relay.now();
begin
  if not relay.may_operate() then
    return jsonb_build_object('outcome', relay.audit('fence_status', v_arguments, 'forbidden'));
  elsif not exists (select from relay.cell c where c.cell_id = fence_status.cell_id) then
    return jsonb_build_object('outcome', relay.audit('fence_status', v_arguments, 'cell_not_found'));
  end if;
  return jsonb_build_object(
    'outcome', relay.audit('fence_status', v_arguments, 'ok'),
    'fenced', relay.is_fenced(fence_status.cell_id, v_now),
    'fence', (select to_jsonb(f) from relay.fence f where f.cell_id = fence_status.cell_id),
    'attempts', (
      select coalesce(jsonb_agg(jsonb_build_object('state', relay.attempt_state(t, v_now)) || to_jsonb(t) order by t.begun_at desc), '[]')
      from (
        select x.* from relay.fence_attempt x where x.cell_id = fence_status.cell_id order by x.begun_at desc limit c_attempts
      ) t),
    'mutation_lease', (select jsonb_build_object('attempt_id', m.attempt_id, 'expires_at', m.expires_at)
      from relay.mutation_lease m where m.expires_at > v_now));
end
$$;
comment on function relay_v1.fence_status(text) is 'The fence of a cell, its last attempts and the mutation lease, as JSON with an outcome';
