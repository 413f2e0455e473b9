-- How far a fence attempt has come: computed from its row, never stored, so that an expiry needs nobody to write it.
-- Caller: fence functions, view fences. Locks: none.
--
-- | state      | when                                            | event -> next state                                         |
-- |------------|-------------------------------------------------|-------------------------------------------------------------|
-- | aborted    | an operator gave it up before its start         | final                                                       |
-- | superseded | a newer process of the cell was heard           | final                                                       |
-- | completed  | a fence was committed                           | commit -> the same fence, 5 min more                        |
-- | started    | the machine may have been stopped               | commit -> completed; newer process -> superseded            |
-- | expired    | not started within 60 min                       | the next begin closes it                                    |
-- | begun      | otherwise                                       | start -> started; abort -> aborted; newer process -> superseded; time -> expired |
create or replace function relay.attempt_state(p_attempt relay.fence_attempt, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_attempt.closed_as is not null then p_attempt.closed_as
    when p_attempt.completed_at is not null then 'completed'
    when p_attempt.started_at is not null then 'started'
    when p_attempt.begun_at <= p_now - relay.span_of('fenceAttemptTtlMs') then 'expired'
    else 'begun'
  end
$$;
