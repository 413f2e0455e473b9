-- What the first heartbeat after an outage leaves behind, before it is itself written:
-- all cells were silent for 20 s: they are heard again from now on, and judged in 60 s (03, hearing);
-- the server is on a new timeline: commits may be lost, so every later epoch is above all that may have been given.
-- Caller: heartbeat. Locks: setting, only when there is something to note.
create or replace function relay.note_outage(p_now timestamptz)
returns void
language plpgsql
as $$
declare
  v_timeline bigint := relay.timeline();
begin
  if not exists (select from relay.cell_runtime r where r.heard_at > p_now - relay.span_of('hearingWindowMs')) then
    update relay.setting set hearing_since = p_now;
  end if;
  if exists (select from relay.setting s where s.timeline <> v_timeline) then
    update relay.setting s
    set timeline = v_timeline,
      epoch_base = greatest(s.epoch_base, (select coalesce(max(a.epoch), 0) from relay.assignment a)) + relay.limit_of('epochJump')
    where s.timeline <> v_timeline;
  end if;
end
$$;
