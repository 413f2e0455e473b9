-- Where the host of a phone's credential is seated. A miss is not an absence: unseated asks the director to place.
-- Caller: director, `POST /v1/resolve` (resume) and the invite mover (invite). Locks: none.
-- Outcomes: seated; unseated (a valid credential, but no row, or no live home: then with the cell and the epoch of the row);
-- invalid_credential.
create or replace function relay_v1.resolve(relay_host_id text, credential_hash text, credential_kind text)
returns relay_v1.resolve_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.resolve_result;
  v_now timestamptz := relay.now();
begin
  if resolve.credential_kind not in ('invite', 'resume') is not false then
    perform relay.misuse('resolve: credential_kind is invite or resume');
  end if;
  v_result.user_id := relay.credential_owner(
    resolve.relay_host_id, resolve.credential_hash, resolve.credential_kind, v_now);
  if v_result.user_id is null then
    v_result.outcome := 'invalid_credential';
    return v_result;
  end if;
  select a.cell_id, a.epoch, c.url, c.region,
    case when l.epoch = a.epoch and l.state <> 'retiring' and l.expires_at > v_now then l.expires_at
      else v_now + relay.span_of('grantLeaseMs') end,
    case when r.ready and r.heard_at > v_now - relay.span_of('heartbeatTtlMs') then 'seated' else 'unseated' end
  into v_result.cell_id, v_result.epoch, v_result.cell_url, v_result.region, v_result.lease_expires_at, v_result.outcome
  from relay.assignment a
  left join relay.cell c on c.cell_id = a.cell_id
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  left join relay.lease l on l.user_id = a.user_id and l.relay_host_id = a.relay_host_id and l.cell_id = a.cell_id
  where a.user_id = v_result.user_id and a.relay_host_id = resolve.relay_host_id;
  if v_result.outcome = 'seated' is not true then
    v_result.outcome := 'unseated';
    v_result.cell_url := null;
    v_result.region := null;
    v_result.lease_expires_at := null;
  end if;
  return v_result;
end
$$;
comment on function relay_v1.resolve(text, text, text) is 'Where the host of a phone''s credential is seated';
