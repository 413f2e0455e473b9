-- Counts one action of an account in a fixed window that starts with its first action; false if the window is full (the
-- refused action is not counted). Keeps the row locked until the transaction ends.
-- Caller: create_invite. Locks: the account's rate window.
create or replace function relay.take_from_rate_window(
  p_user_id text, p_action text, p_limit int, p_window interval)
returns boolean
language plpgsql
as $$
declare
  v_window relay.rate_window;
  v_now timestamptz;
begin
  -- do update, not do nothing: it locks a row that is there, so that no sweep takes it away in between
  insert into relay.rate_window as w (user_id, action, started_at, used)
  values (p_user_id, p_action, '-infinity', 0)
  on conflict on constraint rate_window_pkey do update set used = w.used
  returning w.* into v_window;
  v_now := relay.now();
  if v_now >= v_window.started_at + p_window then
    v_window.started_at := v_now;
    v_window.used := 0;
  end if;
  if v_window.used >= p_limit then
    return false;
  end if;
  update relay.rate_window w set started_at = v_window.started_at, used = v_window.used + 1
  where w.user_id = p_user_id and w.action = p_action;
  return true;
end
$$;
