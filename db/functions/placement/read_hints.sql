-- Adds to an ask what the director knows by itself: the newest seat of the host on its map, and that its polls judged a
-- cell dead, at an instant that this clock gave it (ISO 8601, or epoch milliseconds as a process gets it).
-- Caller: assign, for the few asks that carry either. Locks: none. SQLSTATE RL001 for a malformed one.
create or replace function relay.read_hints(p_ask relay.ask, p_seen jsonb, p_poll_evidence jsonb)
returns relay.ask
language plpgsql stable
as $$
declare
  v_ask relay.ask := p_ask;
  v_at constant jsonb := p_poll_evidence -> 'evaluated_at';
begin
  v_ask.seen_cell_id := p_seen ->> 'cell_id';
  v_ask.seen_epoch := (p_seen ->> 'epoch')::bigint;
  if p_poll_evidence -> 'dead' = 'true' then
    v_ask.dead_cell_id := p_poll_evidence ->> 'cell_id';
    v_ask.dead_at := case jsonb_typeof(v_at)
      when 'number' then to_timestamp(v_at::numeric / 1000)
      else (v_at #>> '{}')::timestamptz
    end;
  end if;
  if jsonb_typeof(p_seen) = 'object' and (length(v_ask.seen_cell_id) > 0 and v_ask.seen_epoch > 0) is not true then
    perform relay.misuse('assign: seen is {cell_id, epoch}');
  end if;
  return v_ask;
exception
  when invalid_text_representation or invalid_datetime_format or datetime_field_overflow or numeric_value_out_of_range then
    perform relay.misuse('assign: seen is {cell_id, epoch}, poll_evidence {cell_id, dead, evaluated_at, …}');
end
$$;
