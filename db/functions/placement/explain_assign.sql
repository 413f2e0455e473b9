-- What assign would answer a host now if a director asked that knows nothing of it, what it would look at, and every cell
-- with the reason why it would not be the target. Writes and locks nothing. Caller: operator, monitor, director.
-- Locks: none.
create or replace function relay_v1.explain_assign(user_id text, relay_host_id text, preferred_region text default null)
returns jsonb
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_ask relay.ask;
  v_d relay.decision;
  v_candidates jsonb;
begin
  v_ask.user_id := explain_assign.user_id; v_ask.relay_host_id := explain_assign.relay_host_id;
  v_ask.preferred_region := explain_assign.preferred_region;
  v_ask.requested_by := 'host'; v_ask.epoch_floor := 0;
  v_d := relay.decide_assign(v_ask, relay.read_home(v_ask, v_now), v_now);
  v_candidates := relay.explain_candidates(v_d, v_now);
  if not v_candidates @> '[{"rejected": null}]' then
    v_d := relay.without_target(v_d);
  end if;
  return jsonb_build_object('outcome', v_d.outcome, 'rule', v_d.rule,
    'cause', case when v_d.outcome = 'unavailable' then v_d.cause end,
    'inputs', jsonb_build_object(
      'row', (select to_jsonb(a) from relay.assignment a
        where a.user_id = explain_assign.user_id and a.relay_host_id = explain_assign.relay_host_id),
      'lease', (select to_jsonb(l) from relay.lease l
        where l.user_id = explain_assign.user_id and l.relay_host_id = explain_assign.relay_host_id
          and l.cell_id = v_d.cell_id),
      'cell', (select to_jsonb(c) from relay.cell c where c.cell_id = v_d.cell_id),
      'runtime', (select to_jsonb(r) from relay.cell_runtime r where r.cell_id = v_d.cell_id),
      'migration', (select to_jsonb(m) from relay.migration m
        where m.user_id = explain_assign.user_id and m.relay_host_id = explain_assign.relay_host_id
          and m.completed_at is null and m.aborted_at is null),
      'fence', (select to_jsonb(f) from relay.fence f where f.cell_id = v_d.cell_id)),
    'candidates', v_candidates);
end
$$;
comment on function relay_v1.explain_assign(text, text, text) is
  'What assign would answer now and why: outcome, rule, inputs, every candidate; writes and locks nothing';
