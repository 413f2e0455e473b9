-- Writes down a call of an operator function and hands its outcome back, so that a function ends with it.
-- Caller: operator functions. Locks: none. Outcome: p_outcome.
create or replace function relay.audit(p_function text, p_arguments jsonb, p_outcome text)
returns text
language plpgsql
as $$
begin
  insert into relay.audit (who, function, arguments_digest, outcome, at)
  values (session_user, p_function, encode(sha256(convert_to(p_arguments::text, 'utf8')), 'hex'), p_outcome, relay.now());
  return p_outcome;
end
$$;
