-- What Postgres knows of a host: its row, its leases, its open migration, and how its home admits hosts. With the account
-- one row at most, by primary key; without it one for each account that has a host of this id.
-- Caller: director, the reserve plan and whereabouts. Locks: none. Outcomes: a row each; none for a host without a row.
create or replace function relay_v1.host_row(relay_host_id text, user_id text default null)
returns setof relay_v1.host_row_result
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
begin
  if host_row.relay_host_id is null then
    perform relay.misuse('host_row: relay_host_id is needed');
  elsif host_row.user_id is not null then
    return query select r.* from relay.assignment a, relay.describe_host(a) r
    where a.user_id = host_row.user_id and a.relay_host_id = host_row.relay_host_id;
  else
    return query select r.* from relay.assignment a, relay.describe_host(a) r
    where a.relay_host_id = host_row.relay_host_id
    order by a.user_id;
  end if;
end
$$;
comment on function relay_v1.host_row(text, text) is
  'The row of a host, with its leases and its open migration; without the account, of every account with a host of this id';
