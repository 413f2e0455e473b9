-- Until when the device's previous resume token still works; null if it no longer does.
-- Caller: open_connection, confirm_resume. Locks: none.
create or replace function relay.open_grace(p_device relay.device, p_now timestamptz)
returns timestamptz
language sql immutable parallel safe
as $$
  select case when p_now < p_device.grace_expires_at then p_device.grace_expires_at end
$$;
