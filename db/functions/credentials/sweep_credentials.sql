-- Deletes what no answer depends on any more. Devices stay: their version must not start again.
-- Caller: a director's sweep. Locks: the rows it deletes; what another transaction holds is skipped.
-- | rows                 | kept for                              | why so long                                         |
-- |----------------------|---------------------------------------|-----------------------------------------------------|
-- | invite               | 24 h after it expired                 | a phone that shows it late is told 4401, not 4409   |
-- | install_result       | 30 d                                  | a phone may ask for its install as long as it lived |
-- | direct_authorization | 30 d                                  | single use                                          |
-- | confirm_result       | 24 h                                  | a replay needs the same live connection             |
-- | rate_window          | an hour                               | a window is a minute                                |
-- Answers how many rows it deleted, at most max_rows: as many means that more wait.
create or replace function relay_v1.sweep_credentials(max_rows int default 500)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_left int := sweep_credentials.max_rows;
  v_deleted int;
begin
  delete from relay.invite i where i.ctid = any(array(
    select c.ctid from relay.invite c
    where c.expires_at < v_now - relay.span_of('inviteRetentionMs') limit v_left for update skip locked));
  get diagnostics v_deleted = row_count;
  v_left := v_left - v_deleted;

  delete from relay.install_result r where r.ctid = any(array(
    select c.ctid from relay.install_result c
    where c.committed_at < v_now - relay.span_of('installReplayMs') limit v_left for update skip locked));
  get diagnostics v_deleted = row_count;
  v_left := v_left - v_deleted;

  delete from relay.direct_authorization a where a.ctid = any(array(
    select c.ctid from relay.direct_authorization c
    where c.recorded_at < v_now - relay.span_of('installReplayMs') limit v_left for update skip locked));
  get diagnostics v_deleted = row_count;
  v_left := v_left - v_deleted;

  delete from relay.confirm_result r where r.ctid = any(array(
    select c.ctid from relay.confirm_result c
    where c.confirmed_at < v_now - relay.span_of('confirmReplayMs') limit v_left for update skip locked));
  get diagnostics v_deleted = row_count;
  v_left := v_left - v_deleted;

  delete from relay.rate_window w where w.ctid = any(array(
    select c.ctid from relay.rate_window c
    where c.started_at < v_now - relay.span_of('rateWindowRetentionMs') limit v_left for update skip locked));
  get diagnostics v_deleted = row_count;
  return sweep_credentials.max_rows - v_left + v_deleted;
end
$$;
comment on function relay_v1.sweep_credentials(int) is
  'Deletes spent invites, old results and rate windows; answers how many rows';
