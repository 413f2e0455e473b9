-- What assign would answer for a host now, what it would look at, and every cell with the reason why it would not be
-- the target. Writes and locks nothing. Caller: operator, monitor, director. Locks: none.
create or replace function relay_v1.explain_assign(user_id text, relay_host_id text, preferred_region text default null)
returns jsonb
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_d relay.decision;
begin
  v_d := relay.decide_assign(
    (explain_assign.user_id, explain_assign.relay_host_id, explain_assign.preferred_region, 'host', null)::relay.ask, v_now);
  return jsonb_build_object('outcome', v_d.outcome, 'rule', v_d.rule, 'cause', v_d.cause,
    'inputs', jsonb_build_object(
      'row', (select to_jsonb(a) from relay.assignment a
        where a.user_id = explain_assign.user_id and a.relay_host_id = explain_assign.relay_host_id),
      'lease', (select to_jsonb(l) from relay.lease l
        where l.user_id = explain_assign.user_id and l.relay_host_id = explain_assign.relay_host_id
          and l.cell_id = v_d.cell_id),
      'cell', (select to_jsonb(c) from relay.cell c where c.cell_id = v_d.cell_id),
      'runtime', (select to_jsonb(r) from relay.cell_runtime r where r.cell_id = v_d.cell_id),
      'migration', null,
      'fence', null),
    'candidates', relay.explain_candidates(v_d, v_now));
end
$$;
comment on function relay_v1.explain_assign(text, text, text) is
  'What assign would answer now and why: outcome, rule, inputs, every candidate; writes and locks nothing';
