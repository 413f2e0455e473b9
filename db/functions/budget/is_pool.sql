-- Whether a JSON value says how large a pool is: a number, or {"pool", "peak"} with a peak that is no larger.
-- Caller: connection_budget. Locks: none.
create or replace function relay.is_pool(p_value jsonb)
returns boolean
language plpgsql immutable
as $$
begin
  return relay.is_integer_within(p_value, 1, 1000)
    or coalesce(relay.is_integer_within(p_value -> 'pool', 1, 1000)
      and relay.is_integer_within(p_value -> 'peak', 1, (p_value ->> 'pool')::numeric::int), false);
end
$$;
