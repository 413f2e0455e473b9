-- The last 1 000 changes of state that are still in the log, newest first. Reader: monitor, operator, director.
create view relay_v1.recent_changes as
select r.* from relay.recent_changes_rows() r order by r.id desc;
comment on view relay_v1.recent_changes is 'The last 1 000 changes of state, newest first; the log keeps 15 min';
comment on column relay_v1.recent_changes.host is 'Digest of the host, as logs name it: the first 12 hex characters of SHA-256 of account, NUL, host id';
comment on column relay_v1.recent_changes.rule is 'Rule of the decision table that placed or moved the host';
comment on column relay_v1.recent_changes.detail is 'What else there is to say; times in it are epoch milliseconds';
