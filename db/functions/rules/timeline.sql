-- The server's timeline: it rises when a standby is promoted, and commits may have been lost then. Read from the name of
-- the WAL file being written, since the control file still holds the old one until the first checkpoint.
-- Caller: mint_epoch, heartbeat, changes_since. Locks: none.
create or replace function relay.timeline()
returns bigint
language sql volatile
as $$ select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint $$;
