-- A limit in milliseconds as an interval. Caller: every function. Locks: none.
create or replace function relay.span_of(p_name text)
returns interval
language sql immutable parallel safe
as $$ select make_interval(secs => relay.limit_of(p_name) / 1000.0) $$;
