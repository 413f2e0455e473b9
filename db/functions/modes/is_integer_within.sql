-- Whether a JSON value is a whole number within bounds, both included. Caller: flags_are_valid. Locks: none.
create or replace function relay.is_integer_within(p_value jsonb, p_least int, p_most int)
returns boolean
language plpgsql immutable
as $$
begin
  return case when jsonb_typeof(p_value) = 'number'
    then (p_value)::numeric = trunc((p_value)::numeric) and (p_value)::numeric between p_least and p_most
    else false end;
end
$$;
