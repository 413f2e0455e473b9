-- Whether every flag that is known has a value that the cells accept: one bad value voids the whole set there, so it is
-- refused here. Unknown keys pass: a newer cell may know them.
-- Caller: set_cell_flags. Locks: none.
create or replace function relay.flags_are_valid(p_flags jsonb)
returns boolean
language plpgsql immutable
as $$
begin
  return coalesce(jsonb_typeof(p_flags) = 'object', false) and not exists (
    select
    from jsonb_each(p_flags) f
    where case
      when f.key in ('readinessLocal', 'rejectionFence', 'reserveDryRun') then jsonb_typeof(f.value) <> 'boolean'
      when f.key = 'ticketCheck' then f.value not in ('"off"', '"shadow"', '"enforce"')
      when f.key = 'admitMode' then f.value not in ('"db"', '"reserve"')
      when f.key = 'deadManTripSlots' then not relay.is_integer_within(f.value, 0, 64)
      when f.key = 'reregisterInFlight' then not relay.is_integer_within(f.value, 1, 16)
      when f.key = 'readTimeoutMarginMs' then not relay.is_integer_within(f.value, 1000, 60000)
      when f.key = 'intakePerSec' then
        case when jsonb_typeof(f.value) = 'number' then (f.value)::numeric not between 0 and 1000 or (f.value)::numeric = 0
          else true end
      else false
    end);
end
$$;
