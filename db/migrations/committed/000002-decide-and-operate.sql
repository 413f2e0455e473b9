--! Previous: sha1:2f07d11c900264c404006b27b9fed0c9fe53f57e
--! Hash: sha1:f6346b8096987a2c3f8dbcaf51d5ca9d81597c2d
--! Message: decide and operate

-- The whole decision about a host, and what an operator does about the life of a cell.
set local lock_timeout = '5s';

-- drains and fences: begin
alter table relay.cell add column drain_ordered_at timestamptz;
alter table relay.cell add column drain_hosts int;
alter table relay.cell add constraint cell_drain_dated check (
  drain_incarnation is not null or num_nonnulls(drain_ordered_at, drain_hosts) = 0);
comment on column relay.cell.drain_ordered_at is 'When the drain was ordered; it tells one order from the next';
comment on column relay.cell.drain_hosts is 'Hosts that were seated or promised a seat here when the drain was ordered: all that there is to drain';
alter table relay.cell_runtime add column drain_told int;
alter table relay.cell_runtime add column drain_left int;
comment on column relay.cell_runtime.drain_told is 'Hosts that the process has told to leave; null while it drains nobody';
comment on column relay.cell_runtime.drain_left is 'Hosts that are still seated on the process while it drains';

-- What is on a cell: its evacuation, the hosts of a fenced cell.
create index assignment_cell_id_idx on relay.assignment (cell_id);

create table relay.migration (
  user_id text not null,
  relay_host_id text not null,
  epoch bigint not null,
  source_cell text not null,
  source_incarnation uuid,
  target_cell text not null,
  target_incarnation uuid,
  opened_at timestamptz not null,
  expires_at timestamptz not null,
  pinned_at timestamptz,
  registered_at timestamptz,
  completed_at timestamptz,
  aborted_at timestamptz,
  constraint migration_pkey primary key (user_id, relay_host_id, epoch),
  constraint migration_cells_differ check (source_cell <> target_cell),
  constraint migration_ends_once check (num_nonnulls(completed_at, aborted_at) <= 1),
  constraint migration_completes_registered check (completed_at is null or registered_at is not null)
) with (fillfactor = 80);
-- One open migration a host: the decision on every ask reads it by this key.
create unique index migration_open_idx on relay.migration (user_id, relay_host_id)
  where completed_at is null and aborted_at is null;
create index migration_open_source_idx on relay.migration (source_cell) where completed_at is null and aborted_at is null;
-- For the sweep of those that ended.
create index migration_opened_at_idx on relay.migration (opened_at);
create index migration_open_target_idx on relay.migration (target_cell) where completed_at is null and aborted_at is null;
comment on table relay.migration is 'A move off a cell that was told to let its hosts go: open until the host is seated on the target and gone from the source';
comment on column relay.migration.user_id is 'Account of the host';
comment on column relay.migration.relay_host_id is 'The host';
comment on column relay.migration.epoch is 'Epoch that the move gave the host: it belongs on the target at exactly this one';
comment on column relay.migration.source_cell is 'Cell that the host leaves';
comment on column relay.migration.source_incarnation is 'Process that the host leaves; null if the cell was never heard';
comment on column relay.migration.target_cell is 'Cell that the host was moved to';
comment on column relay.migration.target_incarnation is 'Process of the target that the host first registered on';
comment on column relay.migration.opened_at is 'When the host was moved';
comment on column relay.migration.expires_at is 'From then on a migration that got nowhere is taken back or given up';
comment on column relay.migration.pinned_at is 'When the source was told to drain with this migration open: the host then leaves the target only by a fence or by a later move';
comment on column relay.migration.registered_at is 'When the host was first seated on the target';
comment on column relay.migration.completed_at is 'When it was seated there and gone from the source';
comment on column relay.migration.aborted_at is 'When it was given up, taken back or overtaken by a later move';

create table relay.fence_attempt (
  attempt_id uuid not null default gen_random_uuid(),
  cell_id text not null,
  incarnation uuid not null,
  operation_id text not null,
  reason text not null,
  evidence jsonb not null,
  digest text not null,
  begun_at timestamptz not null,
  started_at timestamptz,
  completed_at timestamptz,
  commit_evidence jsonb,
  closed_at timestamptz,
  closed_as text,
  close_reason text,
  constraint fence_attempt_pkey primary key (attempt_id),
  constraint fence_attempt_operation_length check (length(operation_id) between 1 and 256),
  constraint fence_attempt_reason_length check (length(reason) between 1 and 1024),
  constraint fence_attempt_completes_started check (completed_at is null or started_at is not null),
  constraint fence_attempt_closed_complete check ((closed_at is null) = (closed_as is null)),
  constraint fence_attempt_closed_known check (closed_as in ('aborted', 'expired', 'superseded')),
  constraint fence_attempt_ends_once check (num_nonnulls(completed_at, closed_at) <= 1)
) with (fillfactor = 80);
create unique index fence_attempt_open_idx on relay.fence_attempt (cell_id) where completed_at is null and closed_at is null;
create index fence_attempt_cell_idx on relay.fence_attempt (cell_id, begun_at);
comment on table relay.fence_attempt is 'An operator''s proof, step by step, that one process of a cell is gone. At most one is open a cell';
comment on column relay.fence_attempt.attempt_id is 'Names the attempt in the later steps';
comment on column relay.fence_attempt.cell_id is 'The cell';
comment on column relay.fence_attempt.incarnation is 'The process that is to be gone';
comment on column relay.fence_attempt.operation_id is 'What the operator calls the operation: the same one goes on, another is refused';
comment on column relay.fence_attempt.reason is 'Why the cell is fenced';
comment on column relay.fence_attempt.evidence is 'What the operator knew when it began';
comment on column relay.fence_attempt.digest is 'SHA-256 of cell, incarnation, operation, reason and evidence, hexadecimal';
comment on column relay.fence_attempt.begun_at is 'When it was begun; not started within 60 min it is expired';
comment on column relay.fence_attempt.started_at is 'From then on the machine may have been stopped';
comment on column relay.fence_attempt.completed_at is 'When the fence was first committed';
comment on column relay.fence_attempt.commit_evidence is 'What showed that the machine is gone, at the last commit';
comment on column relay.fence_attempt.closed_at is 'When it ended without a fence';
comment on column relay.fence_attempt.closed_as is 'aborted by an operator, expired before its start, superseded by a newer process of the cell';
comment on column relay.fence_attempt.close_reason is 'Why an operator aborted it';

create table relay.fence (
  cell_id text not null,
  attempt_id uuid not null,
  incarnation uuid not null,
  committed_at timestamptz not null,
  expires_at timestamptz not null,
  constraint fence_pkey primary key (cell_id),
  constraint fence_attempt_fkey foreign key (attempt_id) references relay.fence_attempt
) with (fillfactor = 80);
comment on table relay.fence is 'Recorded proof that one process of a cell is gone. Deleted by the next heartbeat of the cell';
comment on column relay.fence.cell_id is 'The cell';
comment on column relay.fence.attempt_id is 'Attempt that proved it';
comment on column relay.fence.incarnation is 'The process that is gone';
comment on column relay.fence.committed_at is 'Last commit: it counts only from the last heartbeat on';
comment on column relay.fence.expires_at is 'End of the fence, 5 min after its last commit';

create table relay.mutation_lease (
  only_row boolean not null default true,
  digest text,
  attempt_id uuid,
  expires_at timestamptz,
  constraint mutation_lease_pkey primary key (only_row),
  constraint mutation_lease_one_row check (only_row),
  constraint mutation_lease_held_whole check (num_nulls(digest, attempt_id, expires_at) in (0, 3))
) with (fillfactor = 80);
comment on table relay.mutation_lease is 'Whose fence the fleet is being changed for, one at a time: one row, all null while nobody''s';
comment on column relay.mutation_lease.only_row is 'Keeps the table at one row';
comment on column relay.mutation_lease.digest is 'Digest of the attempt: the same one resumes';
comment on column relay.mutation_lease.attempt_id is 'Attempt that holds it';
comment on column relay.mutation_lease.expires_at is 'From then on another attempt may take it';
insert into relay.mutation_lease default values;

create type relay_v1.fence_result as (
  outcome text, attempt_id uuid, state text, begun_at timestamptz, lease_expires_at timestamptz);
comment on type relay_v1.fence_result is 'Answer of fence_begin: the attempt, how far it has come, and the end of the mutation lease if it holds it';
create type relay_v1.evacuate_result as (outcome text, moved int, remaining int);
comment on type relay_v1.evacuate_result is 'Answer of evacuate_cell and supersede_target: hosts moved by this call, and hosts that another call would look at';
--! Included rules/limit_of.sql
-- The limits that SQL needs, by the names they have in contract/limits.ts; a test holds both equal. Immutable, so that
-- a plan holds the number and no table is read. An unknown name is null: a lint looks for each name that is used.
-- Caller: every function. Locks: none.
create or replace function relay.limit_of(p_name text)
returns bigint
language sql immutable parallel safe
as $$
  select case p_name
    when 'heartbeatTtlMs' then 45000
    when 'hearingWindowMs' then 20000
    when 'hearingSettleMs' then 60000
    when 'grantLeaseMs' then 90000
    when 'renewedLeaseMs' then 105000
    when 'retiringLeaseMs' then 60000
    when 'renewalBatchRows' then 200
    when 'dormantTtlMs' then 86400000
    when 'rollStampTtlMs' then 7200000
    when 'regionPreferenceTtlMs' then 2592000000
    when 'activityStampIntervalMs' then 60000
    when 'strandedAfterMs' then 60000
    when 'strandedAskWindowMs' then 900000
    when 'pollEvidenceTtlMs' then 5000
    when 'verdictMinFeedCells' then 6
    when 'tripSlotTtlMs' then 600000
    when 'ledgerBatchRows' then 500
    when 'changeRetentionMs' then 900000
    when 'controlUnits' then 1
    when 'reservedHostControls' then 100
    when 'exclusiveLatchBelowUnits' then 128
    when 'skipSharedLatchBelowUnits' then 64
    when 'epochJump' then 1000
    when 'migrationLeaseMs' then 900000
    when 'migrationAbandonedMs' then 86400000
    when 'migrationRetentionMs' then 604800000
    when 'maxGraceMs' then 3600000
    when 'maxPaceMs' then 1200000
    when 'fenceTtlMs' then 300000
    when 'fenceAttemptTtlMs' then 3600000
    when 'mutationLeaseMs' then 2100000
    when 'deadCellSweepPercent' then 15
    when 'evacuationMaxHosts' then 1000
    when 'inviteTtlMs' then 600000
    when 'inviteSkewMs' then 30000
    when 'inviteMaxAttempts' then 5
    when 'inviteReservationMs' then 15000
    when 'inviteCooldownMs' then 2000
    when 'invitesPerAccountPerMinute' then 30
    when 'directAuthorizationMs' then 30000
    when 'resumeTtlMs' then 2592000000
    when 'credentialGraceMs' then 86400000
    when 'hostCloseReasonTtlMs' then 86400000
    when 'inviteRetentionMs' then 86400000
    when 'installReplayMs' then 2592000000
    when 'confirmReplayMs' then 86400000
    when 'rateWindowRetentionMs' then 3600000
  end::bigint
$$;
--! EndIncluded rules/limit_of.sql
--! Included cells/cell_load.sql
-- What a cell carries: what its last heartbeat said, plus the unexpired leases which that cannot show yet (no process,
-- another process, or a higher watermark). One statement, because two around a heartbeat would count a host twice or
-- not at all. No row if the cell was never heard. A retiring lease counts only on the process it is on: nobody comes
-- back with it to another, and it may last as long as the grace of a drain, 1 h.
-- A set of one row, so that the planner takes it into the query that asks: a call a candidate costs ×2.
-- Four ranges of one index: a join or an `or` would walk all leases of the cell.
-- Caller: load, choose_target, target_room, explain_candidates, views. Locks: none.
create or replace function relay.cell_load(p_cell_id text, p_now timestamptz)
returns table (load int)
language sql stable
as $$
  select r.enforced_units
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation is null and l.expires_at > p_now and l.state <> 'retiring')
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation = r.incarnation and l.inclusion_watermark > r.inclusion_watermark
        and l.expires_at > p_now)
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation < r.incarnation and l.expires_at > p_now
        and l.state <> 'retiring')
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation > r.incarnation and l.expires_at > p_now
        and l.state <> 'retiring')
  from relay.cell_runtime r
  where r.cell_id = p_cell_id
$$;
--! EndIncluded cells/cell_load.sql
--! Included cells/lock_cell.sql
-- Locks a cell for an operator's change: its row, then its latch, exclusive, as a statement by hand takes them. A grant
-- that has read the old row is committed first, and one that waits reads the new one.
-- Caller: operator functions. Locks: the row of the cell, then its latch. Outcome: the row, all null if there is none.
create or replace function relay.lock_cell(p_cell_id text)
returns relay.cell
language plpgsql
as $$
declare
  v_cell relay.cell;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_cell_id for update;
  if found then
    perform pg_advisory_xact_lock(relay.latch_space(), v_cell.latch);
  end if;
  return v_cell;
end
$$;
--! EndIncluded cells/lock_cell.sql
--! Included drains/retire_leases.sql
-- Lets a host that was moved keep for a while what it holds where it was. Such a lease is not renewed, so it lasts as
-- long as the seat may: it shows whether the host has left.
-- Caller: write_move, evacuate_cell, which hold the host's row. Locks: the host's leases.
create or replace function relay.retire_leases(p_user_id text, p_relay_host_id text, p_retire_until timestamptz)
returns void
language plpgsql
as $$
begin
  update relay.lease l
  set state = 'retiring', retire_until = p_retire_until, expires_at = greatest(l.expires_at, p_retire_until)
  where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id and l.state <> 'retiring';
end
$$;
--! EndIncluded drains/retire_leases.sql
--! Included drains/abort_migration.sql
-- Ends the open migration of a host that is moved again: it was overtaken. Writes the change.
-- Caller: every function that gives a host a higher epoch, and holds its row. Locks: the migration.
create or replace function relay.abort_migration(
  p_user_id text, p_relay_host_id text, p_epoch bigint, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  with aborted as (
    update relay.migration m
    set aborted_at = p_now
    where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id
      and m.completed_at is null and m.aborted_at is null and m.epoch < p_epoch
    returning m.source_cell, m.target_cell, m.epoch
  )
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, detail, at)
  select 'migration', m.source_cell, m.target_cell, p_user_id, p_relay_host_id, m.epoch, '{"state": "aborted"}', p_now
  from aborted m;
end
$$;
--! EndIncluded drains/abort_migration.sql
--! Included drains/open_migration.sql
-- Opens the migration of a host that has just been moved, and writes the change. Pinned if the source was told to drain.
-- Caller: write_move (rule 5), evacuate_cell, supersede_target, which hold the host's row. Locks: none more.
create or replace function relay.open_migration(
  p_user_id text, p_relay_host_id text, p_epoch bigint, p_source_cell text, p_target_cell text, p_pinned boolean,
  p_now timestamptz)
returns void
language plpgsql
as $$
begin
  insert into relay.migration (user_id, relay_host_id, epoch, source_cell, source_incarnation, target_cell, opened_at,
    expires_at, pinned_at)
  values (p_user_id, p_relay_host_id, p_epoch, p_source_cell,
    (select r.incarnation from relay.cell_runtime r where r.cell_id = p_source_cell), p_target_cell, p_now,
    p_now + relay.span_of('migrationLeaseMs'), case when p_pinned then p_now end);
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, detail, at)
  values ('migration', p_source_cell, p_target_cell, p_user_id, p_relay_host_id, p_epoch,
    jsonb_build_object('state', 'opened', 'pinned', p_pinned), p_now);
end
$$;
--! EndIncluded drains/open_migration.sql
--! Included drains/has_open_migration.sql
-- Whether a cell is the source or the target of an open migration. Caller: set_admit_mode, retire_cell. Locks: none.
create or replace function relay.has_open_migration(p_cell_id text)
returns boolean
language plpgsql stable
as $$
begin
  return exists (select from relay.migration m
      where m.source_cell = p_cell_id and m.completed_at is null and m.aborted_at is null)
    or exists (select from relay.migration m
      where m.target_cell = p_cell_id and m.completed_at is null and m.aborted_at is null);
end
$$;
--! EndIncluded drains/has_open_migration.sql
--! Included drains/has_open_drain.sql
-- Whether the running process of a cell is told to drain. Caller: set_admit_mode, evacuate_cell. Locks: none.
create or replace function relay.has_open_drain(p_cell_id text)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.cell c
    join relay.cell_runtime r on r.cell_id = c.cell_id and r.incarnation = c.drain_incarnation
    where c.cell_id = p_cell_id);
end
$$;
--! EndIncluded drains/has_open_drain.sql
--! Included drains/migration_step.sql
-- What is to be done about an open migration now. First match wins; reads, and neither writes nor locks.
-- Caller: settle_migration, advance_migration under the host's row; sweep_migrations unlocked, to find those that are due.
-- Locks: none.
--
-- | # | step      | when                                                                                             |
-- |---|-----------|--------------------------------------------------------------------------------------------------|
-- | 1 | overtaken | the host's row is no longer at the migration's epoch, which belongs to one cell (P2)             |
-- | 2 | register  | the host is seated on the target, and that is not written down                                   |
-- | 3 | complete  | it is seated on the target and has left the source                                               |
-- | 4 | wait      | less than 15 min old; or pinned or registered, less than 24 h old, and the source is not fenced  |
-- | 5 | wait      | it holds something on the target (it may be on its way), or has not left the source              |
-- | 6 | complete  | it was registered once                                                                           |
-- | 7 | roll-back | the source is live, general, in db mode and not draining                                         |
-- | 8 | give-up   | otherwise: the host stays where its row is                                                       |
-- It has left the source when no running process holds its lease there: the lease is gone or expired, another process
-- was heard since, or the source is fenced.
create or replace function relay.migration_step(p_migration relay.migration, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_held text;
  v_left boolean;
begin
  if not exists (select from relay.assignment a
    where a.user_id = p_migration.user_id and a.relay_host_id = p_migration.relay_host_id
      and a.epoch = p_migration.epoch) then
    return 'overtaken';
  end if;
  select l.state into v_held
  from relay.lease l
  where l.user_id = p_migration.user_id and l.relay_host_id = p_migration.relay_host_id
    and l.cell_id = p_migration.target_cell and l.epoch = p_migration.epoch and l.expires_at > p_now;
  if v_held = 'active' and p_migration.registered_at is null then
    return 'register';
  end if;
  v_left := not exists (
      select from relay.lease l
      join relay.cell_runtime r on r.cell_id = l.cell_id and r.incarnation = l.incarnation
      where l.user_id = p_migration.user_id and l.relay_host_id = p_migration.relay_host_id
        and l.cell_id = p_migration.source_cell and l.expires_at > p_now)
    or relay.is_fenced(p_migration.source_cell, p_now);
  if v_held = 'active' and v_left then
    return 'complete';
  elsif p_migration.expires_at > p_now
    or num_nonnulls(p_migration.pinned_at, p_migration.registered_at) > 0
      and p_migration.opened_at > p_now - relay.span_of('migrationAbandonedMs')
      and not relay.is_fenced(p_migration.source_cell, p_now)
    or v_held is not null or not v_left then
    return 'wait';
  elsif p_migration.registered_at is not null then
    return 'complete';
  end if;
  return case when exists (
    select from relay.cell c
    join relay.cell_runtime r on r.cell_id = c.cell_id
    where c.cell_id = p_migration.source_cell and relay.target_rejection(c, r, p_now) is null and c.admit_mode = 'db')
    then 'roll-back' else 'give-up' end;
end
$$;
--! EndIncluded drains/migration_step.sql
--! Included drains/settle_migration.sql
-- Marks the open migration of a host once it is seated on the target, and completes it once it has left the source.
-- Caller: activate_control, release_lease, advance_migration, which hold the host's row. Locks: the migration.
-- Outcome: the step that comes next, null without an open migration or after it is complete.
create or replace function relay.settle_migration(p_user_id text, p_relay_host_id text, p_now timestamptz)
returns text
language plpgsql
as $$
declare
  v_migration relay.migration;
  v_step text;
begin
  select m.* into v_migration
  from relay.migration m
  where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.completed_at is null and m.aborted_at is null
  for update;
  if not found then
    return null;
  end if;
  v_step := relay.migration_step(v_migration, p_now);
  if v_step = 'register' then
    update relay.migration m
    set registered_at = p_now,
      target_incarnation = (select r.incarnation from relay.cell_runtime r where r.cell_id = v_migration.target_cell)
    where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.epoch = v_migration.epoch
    returning m.* into v_migration;
    v_step := relay.migration_step(v_migration, p_now);
  end if;
  if v_step <> 'complete' then
    return v_step;
  end if;
  update relay.migration m
  set completed_at = p_now
  where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.epoch = v_migration.epoch;
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, detail, at)
  values ('migration', v_migration.source_cell, v_migration.target_cell, p_user_id, p_relay_host_id, v_migration.epoch,
    '{"state": "completed"}', p_now);
  return null;
end
$$;
--! EndIncluded drains/settle_migration.sql
--! Included drains/relocate_host.sql
-- Gives a host another home that it did not ask for, at a new epoch. What it holds retires if a time is given; else it
-- ends at once, but for what retires already. Its open migration ends. No activity is stamped: the host showed none.
-- Caller: evacuate_cell, supersede_target, advance_migration, which hold the host's row. Locks: its leases, its migration.
-- Outcome: the epoch; null: none can be minted yet, and nothing is written.
create or replace function relay.relocate_host(
  p_host relay.assignment, p_cell_id text, p_rule text, p_retire_until timestamptz, p_now timestamptz)
returns bigint
language plpgsql
as $$
declare
  v_epoch constant bigint := relay.mint_epoch(p_host.epoch, null);
begin
  if v_epoch is null then
    return null;
  elsif p_retire_until is null then
    delete from relay.lease l
    where l.user_id = p_host.user_id and l.relay_host_id = p_host.relay_host_id and l.state <> 'retiring';
  else
    perform relay.retire_leases(p_host.user_id, p_host.relay_host_id, p_retire_until);
  end if;
  update relay.assignment a
  set cell_id = p_cell_id, epoch = v_epoch
  where a.user_id = p_host.user_id and a.relay_host_id = p_host.relay_host_id;
  perform relay.abort_migration(p_host.user_id, p_host.relay_host_id, v_epoch, p_now);
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, detail, at)
  values ('moved', p_host.cell_id, p_cell_id, p_host.user_id, p_host.relay_host_id, v_epoch, p_rule,
    jsonb_build_object('forced', p_retire_until is null, 'retire_until', (extract(epoch from p_retire_until) * 1000)::bigint),
    p_now);
  return v_epoch;
end
$$;
--! EndIncluded drains/relocate_host.sql
--! Included drains/grant_relocated.sql
-- Promises a host that was relocated a seat on its new home, so that there is room when it asks.
-- Caller: evacuate_cell, supersede_target, which hold the host's row and the latch of the cell. Locks: the lease.
create or replace function relay.grant_relocated(p_host relay.assignment, p_cell_id text, p_epoch bigint, p_now timestamptz)
returns void
language plpgsql
as $$
declare
  v_ask relay.ask;
begin
  v_ask.user_id := p_host.user_id;
  v_ask.relay_host_id := p_host.relay_host_id;
  perform relay.grant_lease(v_ask, p_cell_id, p_epoch, p_now);
  update relay.assignment a
  set unattached_since = p_now
  where a.user_id = p_host.user_id and a.relay_host_id = p_host.relay_host_id;
end
$$;
--! EndIncluded drains/grant_relocated.sql
--! Included drains/advance_migration.sql
-- Does what is due about the open migration of a host: settles it, gives it up, or takes the host back to the source.
-- True if it ended. Caller: sweep_migrations, which holds the host's row. Locks: the migration; the source's latch,
-- shared, only tried: an operator who is changing the source comes first.
create or replace function relay.advance_migration(p_user_id text, p_relay_host_id text)
returns boolean
language plpgsql
as $$
declare
  v_step constant text := relay.settle_migration(p_user_id, p_relay_host_id, relay.now());
  v_migration relay.migration;
  v_host relay.assignment;
  v_now timestamptz;
begin
  if v_step is null or v_step in ('wait', 'register') then
    return v_step is null;
  end if;
  select m.* into v_migration
  from relay.migration m
  where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.completed_at is null and m.aborted_at is null;
  if v_step = 'roll-back' then
    if not exists (select from relay.cell c
      where c.cell_id = v_migration.source_cell and pg_try_advisory_xact_lock_shared(relay.latch_space(), c.latch)) then
      return false;
    end if;
    v_now := relay.now();
    if relay.migration_step(v_migration, v_now) = 'roll-back' then
      select a.* into v_host from relay.assignment a where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id;
      return relay.relocate_host(v_host, v_migration.source_cell, 'rolled-back', null, v_now) is not null;
    end if;
    return false;
  end if;
  perform relay.abort_migration(p_user_id, p_relay_host_id, v_migration.epoch + 1, relay.now());
  return true;
end
$$;
--! EndIncluded drains/advance_migration.sql
--! Included drains/start_drain.sql
-- Tells the running process of a cell to let its hosts go: to tell them one by one over the pace, and to cut what they
-- still hold a grace after each was told. Pins the open migrations off the cell. A later order takes the place of an
-- earlier one. Never touches the heartbeat's `ready`.
-- Caller: operator. Locks: the cell, its latch (exclusive), its open migrations in (user_id, relay_host_id) order, as
-- the passes over many of them do.
-- Outcomes: ok, forbidden, cell_not_found, cell_in_reserve_mode (unless it is set apart for a roll),
-- drain_attempt_admission_enabled (it is general), source_cell_unavailable (it was never heard),
-- drain_migration_source_incarnation_mismatch (an open migration leaves an older process).
create or replace function relay_v1.start_drain(cell_id text, grace_ms int default 60000, pace_ms int default 60000)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(start_drain.cell_id, start_drain.grace_ms, start_drain.pace_ms);
  v_cell relay.cell;
  v_incarnation uuid;
  v_refusal text;
  v_now timestamptz;
begin
  if start_drain.grace_ms between 0 and relay.limit_of('maxGraceMs') is not true
    or start_drain.pace_ms between 0 and relay.limit_of('maxPaceMs') is not true then
    perform relay.misuse(format('start_drain: grace_ms is 0 to %s, pace_ms 0 to %s',
      relay.limit_of('maxGraceMs'), relay.limit_of('maxPaceMs')));
  elsif not relay.may_operate() then
    return relay.audit('start_drain', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(start_drain.cell_id);
  select r.incarnation into v_incarnation from relay.cell_runtime r where r.cell_id = start_drain.cell_id;
  v_now := relay.now();
  v_refusal := case
    when v_cell.cell_id is null then 'cell_not_found'
    when v_cell.admit_mode = 'reserve' and (v_now - v_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true
      then 'cell_in_reserve_mode'
    when v_cell.admission = 'general' then 'drain_attempt_admission_enabled'
    when v_incarnation is null then 'source_cell_unavailable'
    when exists (select from relay.migration m
      where m.source_cell = start_drain.cell_id and m.completed_at is null and m.aborted_at is null and m.pinned_at is null
        and m.source_incarnation is distinct from v_incarnation) then 'drain_migration_source_incarnation_mismatch'
  end;
  if v_refusal is not null then
    return relay.audit('start_drain', v_arguments, v_refusal);
  end if;
  with unpinned as materialized (
    select m.user_id, m.relay_host_id, m.epoch
    from relay.migration m
    where m.source_cell = start_drain.cell_id and m.completed_at is null and m.aborted_at is null and m.pinned_at is null
    order by m.user_id, m.relay_host_id
    for update
  )
  update relay.migration m
  set pinned_at = v_now
  from unpinned u
  where m.user_id = u.user_id and m.relay_host_id = u.relay_host_id and m.epoch = u.epoch;
  update relay.cell c
  set drain_incarnation = v_incarnation, drain_grace_ms = start_drain.grace_ms, drain_pace_ms = start_drain.pace_ms,
    drain_ordered_at = v_now,
    drain_hosts = (select count(*) from relay.lease l
      where l.cell_id = start_drain.cell_id and l.state <> 'retiring' and l.expires_at > v_now)
  where c.cell_id = start_drain.cell_id;
  perform relay.ring('drain', start_drain.cell_id, jsonb_build_object('state', 'ordered', 'incarnation', v_incarnation,
    'grace_ms', start_drain.grace_ms, 'pace_ms', start_drain.pace_ms), v_now);
  return relay.audit('start_drain', v_arguments, 'ok');
end
$$;
comment on function relay_v1.start_drain(text, int, int) is
  'Tells a cell to let its hosts go: told one by one over pace_ms, cut grace_ms after. ok, or why not';
--! EndIncluded drains/start_drain.sql
--! Included drains/cancel_drain.sql
-- Takes a drain order back: hosts that were not told yet stay.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, drain_attempt_not_found (there is no order).
create or replace function relay_v1.cancel_drain(cell_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(cancel_drain.cell_id);
  v_cell relay.cell;
begin
  if not relay.may_operate() then
    return relay.audit('cancel_drain', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(cancel_drain.cell_id);
  if v_cell.cell_id is null or v_cell.drain_incarnation is null then
    return relay.audit('cancel_drain', v_arguments,
      case when v_cell.cell_id is null then 'cell_not_found' else 'drain_attempt_not_found' end);
  end if;
  update relay.cell c
  set drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null, drain_ordered_at = null, drain_hosts = null
  where c.cell_id = cancel_drain.cell_id;
  perform relay.ring('drain', cancel_drain.cell_id,
    jsonb_build_object('state', 'cancelled', 'incarnation', v_cell.drain_incarnation), relay.now());
  return relay.audit('cancel_drain', v_arguments, 'ok');
end
$$;
comment on function relay_v1.cancel_drain(text) is 'Takes a drain order back. ok, or why not';
--! EndIncluded drains/cancel_drain.sql
--! Included drains/source_refusal.sql
-- Why a cell cannot be evacuated, or null if it can. Caller: evacuate_cell. Locks: none.
-- Outcomes: cell_not_found; cell_in_reserve_mode; drain_attempt_admission_enabled (it is general, and would fill again);
-- source_cell_unavailable (not live: its hosts leave by a fence).
create or replace function relay.source_refusal(p_source_cell text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_cell relay.cell;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_source_cell;
  return case
    when v_cell.cell_id is null then 'cell_not_found'
    when v_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'
    when v_cell.admission = 'general' then 'drain_attempt_admission_enabled'
    when not exists (select from relay.cell_runtime r
      where r.cell_id = p_source_cell and r.ready and r.heard_at > p_now - relay.span_of('heartbeatTtlMs'))
      then 'source_cell_unavailable'
  end;
end
$$;
--! EndIncluded drains/source_refusal.sql
--! Included drains/evacuation_refusal.sql
-- Why hosts cannot be moved to a cell that an operator names, or null if they can.
-- Caller: evacuate_cell, supersede_target. Locks: none.
-- Outcomes: cell_not_found; cell_in_reserve_mode; target_cell_unavailable (existing-only, not live, or draining);
-- relay_connection_headroom_exhausted.
create or replace function relay.evacuation_refusal(p_target_cell text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_cell relay.cell;
  v_runtime relay.cell_runtime;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_target_cell;
  select r.* into v_runtime from relay.cell_runtime r where r.cell_id = p_target_cell;
  return case
    when v_cell.cell_id is null then 'cell_not_found'
    when v_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'
    when v_cell.admission = 'existing-only' or v_cell.drain_incarnation = v_runtime.incarnation
      or (v_runtime.ready and v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')) is not true
      then 'target_cell_unavailable'
    when relay.load(p_target_cell, p_now) >= v_cell.unit_limit then 'relay_connection_headroom_exhausted'
  end;
end
$$;
--! EndIncluded drains/evacuation_refusal.sql
--! Included drains/latch_pair.sql
-- Takes the latches of two cells, ascending: of the one that hosts are moved to exclusive, since many are granted at
-- once; of the one that they leave shared. Caller: evacuate_cell, supersede_target, after the hosts' rows.
-- Locks: both latches, each ≤ 500 ms, then SQLSTATE 55P03: the hosts whose rows are held would wait as long.
create or replace function relay.latch_pair(p_from_cell text, p_to_cell text)
returns void
language plpgsql
set lock_timeout = '500ms'
as $$
declare
  v_cell record;
begin
  for v_cell in
    select c.cell_id, c.latch from relay.cell c where c.cell_id in (p_from_cell, p_to_cell) order by c.latch
  loop
    if v_cell.cell_id = p_to_cell then
      perform pg_advisory_xact_lock(relay.latch_space(), v_cell.latch);
    else
      perform pg_advisory_xact_lock_shared(relay.latch_space(), v_cell.latch);
    end if;
  end loop;
end
$$;
--! EndIncluded drains/latch_pair.sql
--! Included drains/may_be_evacuated.sql
-- Whether a host can be moved off a cell that is evacuated: not while it is on its way there, having been promised a seat,
-- and not before an earlier migration is done. Caller: evacuate_cell, evacuate_host. Locks: none.
create or replace function relay.may_be_evacuated(p_host relay.assignment, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return not exists (
      select from relay.migration m
      where m.user_id = p_host.user_id and m.relay_host_id = p_host.relay_host_id
        and m.completed_at is null and m.aborted_at is null)
    and not exists (
      select from relay.lease l
      where l.user_id = p_host.user_id and l.relay_host_id = p_host.relay_host_id and l.cell_id = p_host.cell_id
        and l.epoch = p_host.epoch and l.state = 'granted' and l.expires_at > p_now);
end
$$;
--! EndIncluded drains/may_be_evacuated.sql
--! Included drains/evacuate_host.sql
-- Moves one host off a cell that is evacuated. A seated host keeps its seat for the grace, is promised one on the target
-- and gets a migration; one that holds nothing only gets another row. One that was promised a seat and is on its way, that
-- is not done with an earlier migration, or for whose seat there is no room, is left for a later call.
-- Caller: evacuate_cell, which holds the host's row and the latches. Locks: the host's leases.
-- Outcome: units that it takes on the target (1 or 0), null if it was left.
create or replace function relay.evacuate_host(
  p_host relay.assignment, p_target_cell text, p_has_room boolean, p_pinned boolean, p_grace interval, p_now timestamptz)
returns int
language plpgsql
as $$
declare
  v_state text;
  v_epoch bigint;
begin
  if not relay.may_be_evacuated(p_host, p_now) then
    return null;
  end if;
  select l.state into v_state
  from relay.lease l
  where l.user_id = p_host.user_id and l.relay_host_id = p_host.relay_host_id and l.cell_id = p_host.cell_id
    and l.epoch = p_host.epoch and l.expires_at > p_now;
  if v_state = 'active' and not p_has_room then
    return null;
  end if;
  v_epoch := relay.relocate_host(p_host, p_target_cell, 'evacuated',
    case when v_state = 'active' then p_now + p_grace end, p_now);
  if v_epoch is null or v_state is null then
    return case when v_epoch is not null then 0 end;
  end if;
  perform relay.grant_relocated(p_host, p_target_cell, v_epoch, p_now);
  perform relay.open_migration(p_host.user_id, p_host.relay_host_id, v_epoch, p_host.cell_id, p_target_cell, p_pinned, p_now);
  return relay.limit_of('controlUnits');
end
$$;
--! EndIncluded drains/evacuate_host.sql
--! Included drains/evacuate_cell.sql
-- Moves hosts off a cell to one that the operator names, at most max_hosts a call; call again until none remains.
-- Caller: operator. Locks: the hosts' rows (skipped if locked), the latches of both cells, the hosts' leases.
-- A latch that is not had within 500 ms is SQLSTATE 55P03, and nothing is moved: call again.
-- Outcomes: ok (with hosts moved, and hosts still there), forbidden, target_matches_source, those of source_refusal and
-- evacuation_refusal.
create or replace function relay_v1.evacuate_cell(source text, target text, max_hosts int default 100)
returns relay_v1.evacuate_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(evacuate_cell.source, evacuate_cell.target, evacuate_cell.max_hosts);
  v_hosts relay.assignment[];
  v_host relay.assignment;
  v_result relay_v1.evacuate_result;
  v_pinned boolean;
  v_grace interval;
  v_free int;
  v_units int;
  v_now timestamptz := relay.now();
begin
  if evacuate_cell.max_hosts between 1 and relay.limit_of('evacuationMaxHosts') is not true then
    perform relay.misuse(format('evacuate_cell: max_hosts is 1 to %s', relay.limit_of('evacuationMaxHosts')));
  end if;
  v_result.moved := 0;
  v_result.outcome := case
    when not relay.may_operate() then 'forbidden'
    when evacuate_cell.source = evacuate_cell.target then 'target_matches_source'
    else coalesce(relay.source_refusal(evacuate_cell.source, v_now), relay.evacuation_refusal(evacuate_cell.target, v_now))
  end;
  if v_result.outcome is null then
    v_hosts := array(
      select a from relay.assignment a
      where a.cell_id = evacuate_cell.source and relay.may_be_evacuated(a, v_now)
      order by a.user_id, a.relay_host_id
      limit evacuate_cell.max_hosts
      for no key update skip locked);
    perform relay.latch_pair(evacuate_cell.source, evacuate_cell.target);
    v_now := relay.now();
    v_result.outcome := coalesce(relay.source_refusal(evacuate_cell.source, v_now),
      relay.evacuation_refusal(evacuate_cell.target, v_now), 'ok');
  end if;
  if v_result.outcome = 'ok' then
    v_pinned := relay.has_open_drain(evacuate_cell.source);
    select case when v_pinned then make_interval(secs => c.drain_grace_ms / 1000.0) else relay.span_of('retiringLeaseMs') end
    into v_grace from relay.cell c where c.cell_id = evacuate_cell.source;
    select c.unit_limit - relay.load(c.cell_id, v_now) into v_free from relay.cell c where c.cell_id = evacuate_cell.target;
    foreach v_host in array v_hosts loop
      v_units := relay.evacuate_host(v_host, evacuate_cell.target, v_free > 0, v_pinned, v_grace, v_now);
      v_free := v_free - coalesce(v_units, 0);
      v_result.moved := v_result.moved + (v_units is not null)::int;
    end loop;
    v_result.remaining := (select count(*) from relay.assignment a where a.cell_id = evacuate_cell.source);
  end if;
  perform relay.audit('evacuate_cell', v_arguments, v_result.outcome);
  return v_result;
end
$$;
comment on function relay_v1.evacuate_cell(text, text, int) is
  'Moves up to max_hosts hosts of a cell to another; ok with how many, or why not';
--! EndIncluded drains/evacuate_cell.sql
--! Included drains/supersede_refusal.sql
-- Why the migrations of a source cannot be moved from a dead target to another, or null if they can.
-- Caller: supersede_target. Locks: none. Outcomes: see there.
create or replace function relay.supersede_refusal(
  p_source_cell text, p_dead_target text, p_replacement text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_admission text;
begin
  select c.admission into v_admission from relay.cell c where c.cell_id = p_dead_target;
  return case
    when not found then 'cell_not_found'
    when p_replacement in (p_source_cell, p_dead_target) then 'target_matches_source'
    when v_admission <> 'existing-only' then 'cell_fence_admission_enabled'
    when not relay.is_fenced(p_dead_target, p_now) then 'cell_fence_attestation_missing'
    else relay.evacuation_refusal(p_replacement, p_now)
  end;
end
$$;
--! EndIncluded drains/supersede_refusal.sql
--! Included drains/supersede_migration.sql
-- Moves one host whose migration's target died to another target. True if it was moved; false if the migration has ended
-- meanwhile, or no epoch can be minted yet. Caller: supersede_target, which holds the host's row and the latches. Locks: the host's leases and migrations.
create or replace function relay.supersede_migration(p_host relay.assignment, p_target_cell text, p_now timestamptz)
returns boolean
language plpgsql
as $$
declare
  v_old relay.migration;
  v_epoch bigint;
begin
  select m.* into v_old
  from relay.migration m
  where m.user_id = p_host.user_id and m.relay_host_id = p_host.relay_host_id and m.epoch = p_host.epoch
    and m.completed_at is null and m.aborted_at is null
  for update;
  if not found then
    return false;
  end if;
  v_epoch := relay.relocate_host(p_host, p_target_cell, 'superseded', null, p_now);
  if v_epoch is null then
    return false;
  end if;
  perform relay.grant_relocated(p_host, p_target_cell, v_epoch, p_now);
  perform relay.open_migration(p_host.user_id, p_host.relay_host_id, v_epoch, v_old.source_cell, p_target_cell,
    v_old.pinned_at is not null, p_now);
  update relay.migration m
  set source_incarnation = v_old.source_incarnation, pinned_at = v_old.pinned_at
  where m.user_id = p_host.user_id and m.relay_host_id = p_host.relay_host_id and m.epoch = v_epoch;
  return true;
end
$$;
--! EndIncluded drains/supersede_migration.sql
--! Included drains/supersede_target.sql
-- Moves the open migrations of a source off a target that died on them to another one, at most max_hosts a call. Each
-- ends, and another with a new epoch takes its place; its pin and the process it leaves are carried over.
-- Caller: operator. Locks: the hosts' rows (skipped if locked), the latches of both targets, the hosts' leases and
-- migrations.
-- A latch that is not had within 500 ms is SQLSTATE 55P03, and nothing is moved: call again.
-- Outcomes: ok (with hosts moved, and migrations still there), forbidden, target_matches_source (the replacement is the
-- source or the dead target), cell_fence_admission_enabled (the dead target is not existing-only),
-- cell_fence_attestation_missing (it is not fenced), those of evacuation_refusal for the replacement.
create or replace function relay_v1.supersede_target(source text, dead_target text, replacement text, max_hosts int default 100)
returns relay_v1.evacuate_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(supersede_target.source, supersede_target.dead_target,
    supersede_target.replacement, supersede_target.max_hosts);
  v_hosts relay.assignment[];
  v_host relay.assignment;
  v_result relay_v1.evacuate_result;
  v_free int;
  v_now timestamptz := relay.now();
begin
  if supersede_target.max_hosts between 1 and relay.limit_of('evacuationMaxHosts') is not true then
    perform relay.misuse(format('supersede_target: max_hosts is 1 to %s', relay.limit_of('evacuationMaxHosts')));
  end if;
  v_result.moved := 0;
  v_result.outcome := case when not relay.may_operate() then 'forbidden' else relay.supersede_refusal(
    supersede_target.source, supersede_target.dead_target, supersede_target.replacement, v_now) end;
  if v_result.outcome is null then
    v_hosts := array(
      select a
      from relay.migration m
      join relay.assignment a on a.user_id = m.user_id and a.relay_host_id = m.relay_host_id
        and a.cell_id = m.target_cell and a.epoch = m.epoch
      where m.source_cell = supersede_target.source and m.target_cell = supersede_target.dead_target
        and m.completed_at is null and m.aborted_at is null
      order by a.user_id, a.relay_host_id
      limit supersede_target.max_hosts
      for no key update of a skip locked);
    perform relay.latch_pair(supersede_target.dead_target, supersede_target.replacement);
    v_now := relay.now();
    v_result.outcome := coalesce(relay.supersede_refusal(
      supersede_target.source, supersede_target.dead_target, supersede_target.replacement, v_now), 'ok');
  end if;
  if v_result.outcome = 'ok' then
    select c.unit_limit - relay.load(c.cell_id, v_now) into v_free
    from relay.cell c where c.cell_id = supersede_target.replacement;
    foreach v_host in array v_hosts loop
      exit when v_result.moved >= v_free;
      v_result.moved := v_result.moved + relay.supersede_migration(v_host, supersede_target.replacement, v_now)::int;
    end loop;
    v_result.remaining := (select count(*) from relay.migration m
      where m.source_cell = supersede_target.source and m.target_cell = supersede_target.dead_target
        and m.completed_at is null and m.aborted_at is null);
  end if;
  perform relay.audit('supersede_target', v_arguments, v_result.outcome);
  return v_result;
end
$$;
comment on function relay_v1.supersede_target(text, text, text, int) is
  'Moves open migrations off a fenced dead target to another cell; ok with how many, or why not';
--! EndIncluded drains/supersede_target.sql
--! Included drains/migration_status.sql
-- How the migrations off a cell stand, to one target or to all; those that ended count for 7 d.
-- Caller: operator. Locks: none. Outcomes, in `outcome`: ok, forbidden, cell_not_found.
create or replace function relay_v1.migration_status(source text, target text default null)
returns jsonb
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(migration_status.source, migration_status.target);
  v_now timestamptz := relay.now();
begin
  if not relay.may_operate() then
    return jsonb_build_object('outcome', relay.audit('migration_status', v_arguments, 'forbidden'));
  elsif not exists (select from relay.cell c where c.cell_id = migration_status.source) then
    return jsonb_build_object('outcome', relay.audit('migration_status', v_arguments, 'cell_not_found'));
  end if;
  return jsonb_build_object('outcome', relay.audit('migration_status', v_arguments, 'ok'),
    'hosts_on_source', (select count(*) from relay.assignment a where a.cell_id = migration_status.source)) || (
    select jsonb_build_object(
      'open', count(*) filter (where x.open),
      'pinned', count(*) filter (where x.open and x.pinned_at is not null),
      'registered', count(*) filter (where x.open and x.registered_at is not null),
      'expired', count(*) filter (where x.open and x.expires_at <= v_now),
      'oldest_opened_at', min(x.opened_at) filter (where x.open),
      'completed', count(*) filter (where x.completed_at is not null),
      'aborted', count(*) filter (where x.aborted_at is not null))
    from (
      select m.*, m.completed_at is null and m.aborted_at is null as open
      from relay.migration m
      where m.source_cell = migration_status.source
        and (migration_status.target is null or m.target_cell = migration_status.target)
    ) x);
end
$$;
comment on function relay_v1.migration_status(text, text) is 'How the migrations off a cell stand, as JSON with an outcome';
--! EndIncluded drains/migration_status.sql
--! Included fences/attempt_state.sql
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
--! EndIncluded fences/attempt_state.sql
--! Included fences/attempt_refusal.sql
-- Why an attempt in this state takes no further step, or null if it may.
-- Caller: fence_start, fence_commit, fence_abort. Locks: none.
create or replace function relay.attempt_refusal(p_state text)
returns text
language sql immutable
as $$
  select case
    when p_state is null then 'cell_fence_attempt_not_found'
    when p_state in ('aborted', 'expired', 'superseded') then 'cell_fence_attempt_' || p_state
  end
$$;
--! EndIncluded fences/attempt_refusal.sql
--! Included fences/is_fenced.sql
-- Whether a committed fence proves that the last process of a cell is gone (03, fences): the attempt is complete, the
-- cell existing-only, the process the one of the last heartbeat, the commit not before that heartbeat, and not expired.
-- Caller: decide_assign (rule 12), sweeps, supersede_target. Locks: none.
create or replace function relay.is_fenced(p_cell_id text, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.fence f
    join relay.fence_attempt t on t.attempt_id = f.attempt_id and t.completed_at is not null and t.closed_at is null
    join relay.cell c on c.cell_id = f.cell_id and c.admission = 'existing-only'
    join relay.cell_runtime r on r.cell_id = f.cell_id and r.incarnation = f.incarnation and r.heard_at <= f.committed_at
    where f.cell_id = p_cell_id and f.expires_at > p_now);
end
$$;
--! EndIncluded fences/is_fenced.sql
--! Included fences/take_mutation_lease.sql
-- Takes the fleet's mutation lease for an attempt, or holds it 35 min longer if it has it; false while another's.
-- Caller: fence_begin, fence_start. Locks: the mutation lease.
create or replace function relay.take_mutation_lease(p_attempt_id uuid, p_digest text, p_now timestamptz)
returns boolean
language plpgsql
as $$
begin
  update relay.mutation_lease m
  set digest = p_digest, attempt_id = p_attempt_id, expires_at = p_now + relay.span_of('mutationLeaseMs')
  where m.digest is null or m.digest = p_digest or m.expires_at <= p_now;
  return found;
end
$$;
--! EndIncluded fences/take_mutation_lease.sql
--! Included fences/free_mutation_lease.sql
-- Frees the fleet's mutation lease if this attempt holds it. Caller: fence_commit, fence_abort, void_fence.
-- Locks: the mutation lease.
create or replace function relay.free_mutation_lease(p_attempt_id uuid)
returns void
language plpgsql
as $$
begin
  update relay.mutation_lease m
  set digest = null, attempt_id = null, expires_at = null
  where m.attempt_id = p_attempt_id;
end
$$;
--! EndIncluded fences/free_mutation_lease.sql
--! Included fences/lock_attempt.sql
-- Locks a fence attempt for its next step: the cell, its latch and its runtime row first, in the order of fence_begin.
-- Caller: fence_start, fence_commit, fence_abort. Locks: the cell, its latch (exclusive), its runtime row, the attempt.
-- Outcome: the attempt, all null if there is none.
create or replace function relay.lock_attempt(p_attempt_id uuid)
returns relay.fence_attempt
language plpgsql
as $$
declare
  v_attempt relay.fence_attempt;
begin
  select t.* into v_attempt from relay.fence_attempt t where t.attempt_id = p_attempt_id;
  perform relay.lock_cell(v_attempt.cell_id);
  perform from relay.cell_runtime r where r.cell_id = v_attempt.cell_id for update;
  select t.* into v_attempt from relay.fence_attempt t where t.attempt_id = p_attempt_id for update;
  return v_attempt;
end
$$;
--! EndIncluded fences/lock_attempt.sql
--! Included fences/begin_attempt.sql
-- Finds the attempt that this call goes on with, or makes it, and takes the mutation lease for it.
-- Caller: fence_begin, which holds the cell, its latch and its runtime row. Locks: the cell's attempts, the mutation lease.
-- Outcomes: begun; cell_fence_attempt_evidence_mismatch (another one is open); cell_fence_already_attested (another one
-- has a fence that holds); mutation_lease_conflict.
create or replace function relay.begin_attempt(p_wanted relay.fence_attempt, p_now timestamptz)
returns relay_v1.fence_result
language plpgsql
as $$
declare
  v_expired uuid;
  v_attempt relay.fence_attempt;
  v_result relay_v1.fence_result;
begin
  update relay.fence_attempt t
  set closed_at = p_now, closed_as = 'expired'
  where t.cell_id = p_wanted.cell_id and t.closed_at is null and relay.attempt_state(t, p_now) = 'expired'
  returning t.attempt_id into v_expired;
  -- begun again late in its hour it holds the lease beyond its end, and nothing else would free it
  perform relay.free_mutation_lease(v_expired);
  select t.* into v_attempt
  from relay.fence_attempt t
  where t.cell_id = p_wanted.cell_id and t.incarnation = p_wanted.incarnation and t.closed_at is null
  order by t.digest = p_wanted.digest desc, t.completed_at nulls first
  limit 1
  for update;
  if v_attempt.digest <> p_wanted.digest and v_attempt.completed_at is null then
    v_result.outcome := 'cell_fence_attempt_evidence_mismatch';
  elsif v_attempt.digest <> p_wanted.digest and relay.is_fenced(p_wanted.cell_id, p_now) then
    v_result.outcome := 'cell_fence_already_attested';
  else
    if v_attempt.digest is distinct from p_wanted.digest then
      v_attempt := p_wanted;
      v_attempt.attempt_id := gen_random_uuid();
      v_attempt.begun_at := p_now;
    end if;
    if v_attempt.completed_at is null
      and not relay.take_mutation_lease(v_attempt.attempt_id, v_attempt.digest, p_now) then
      v_result.outcome := 'mutation_lease_conflict';
      return v_result;
    end if;
    insert into relay.fence_attempt select (v_attempt).* on conflict on constraint fence_attempt_pkey do nothing;
    if found then
      perform relay.ring('fence', p_wanted.cell_id, jsonb_build_object('state', 'begun',
        'incarnation', p_wanted.incarnation, 'attempt_id', v_attempt.attempt_id), p_now);
    end if;
    v_result.outcome := 'begun';
    v_result.attempt_id := v_attempt.attempt_id;
    v_result.state := relay.attempt_state(v_attempt, p_now);
    v_result.begun_at := v_attempt.begun_at;
    v_result.lease_expires_at := (select m.expires_at from relay.mutation_lease m where m.attempt_id = v_attempt.attempt_id);
  end if;
  return v_result;
end
$$;
--! EndIncluded fences/begin_attempt.sql
--! Included fences/fence_begin.sql
-- Begins to prove that a process of a cell is gone, or goes on with what was begun: the same arguments find the same
-- attempt again. Takes the fleet's mutation lease for 35 min.
-- Caller: operator. Locks: the cell, its latch (exclusive), its runtime row, its attempts, the mutation lease.
-- Outcomes: begun, forbidden, cell_not_found, cell_fence_admission_enabled (it is not existing-only),
-- cell_fence_runtime_mismatch (not the process of the last heartbeat), and those of begin_attempt.
create or replace function relay_v1.fence_begin(
  cell_id text, incarnation uuid, operation_id text, reason text, evidence jsonb default '{}')
returns relay_v1.fence_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_begin.cell_id, fence_begin.incarnation, fence_begin.operation_id,
    fence_begin.reason, fence_begin.evidence);
  v_cell relay.cell;
  v_wanted relay.fence_attempt;
  v_result relay_v1.fence_result;
begin
  if num_nulls(fence_begin.cell_id, fence_begin.incarnation, fence_begin.operation_id, fence_begin.reason,
    fence_begin.evidence) > 0 then
    perform relay.misuse('fence_begin: every argument is needed');
  elsif not relay.may_operate() then
    v_result.outcome := 'forbidden';
  else
    v_cell := relay.lock_cell(fence_begin.cell_id);
    perform from relay.cell_runtime r
    where r.cell_id = fence_begin.cell_id and r.incarnation = fence_begin.incarnation
    for update;
    v_result.outcome := case
      when v_cell.cell_id is null then 'cell_not_found'
      when v_cell.admission <> 'existing-only' then 'cell_fence_admission_enabled'
      when not found then 'cell_fence_runtime_mismatch'
    end;
  end if;
  if v_result.outcome is null then
    v_wanted.cell_id := fence_begin.cell_id;
    v_wanted.incarnation := fence_begin.incarnation;
    v_wanted.operation_id := fence_begin.operation_id;
    v_wanted.reason := fence_begin.reason;
    v_wanted.evidence := fence_begin.evidence;
    v_wanted.digest := encode(sha256(convert_to(v_arguments::text, 'utf8')), 'hex');
    v_result := relay.begin_attempt(v_wanted, relay.now());
  end if;
  perform relay.audit('fence_begin', v_arguments, v_result.outcome);
  return v_result;
end
$$;
comment on function relay_v1.fence_begin(text, uuid, text, text, jsonb) is
  'Begins to prove that a process of a cell is gone; the same arguments find the same attempt. begun, or why not';
--! EndIncluded fences/fence_begin.sql
--! Included fences/fence_start.sql
-- The operator is about to stop the machine: from here on the attempt can no longer be aborted. Holds the mutation lease
-- 35 min longer, or takes it again.
-- Caller: operator. Locks: see lock_attempt; then the mutation lease.
-- Outcomes: ok (again too), forbidden, cell_fence_attempt_not_found, _aborted, _expired (not started within 60 min),
-- _superseded, mutation_lease_conflict.
create or replace function relay_v1.fence_start(attempt_id uuid)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_start.attempt_id);
  v_attempt relay.fence_attempt;
  v_state text;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('fence_start', v_arguments, 'forbidden');
  end if;
  v_attempt := relay.lock_attempt(fence_start.attempt_id);
  v_now := relay.now();
  v_state := case when v_attempt.attempt_id is not null then relay.attempt_state(v_attempt, v_now) end;
  v_refusal := relay.attempt_refusal(v_state);
  if v_refusal is null and v_state = 'begun' then
    if relay.take_mutation_lease(v_attempt.attempt_id, v_attempt.digest, v_now) then
      update relay.fence_attempt t set started_at = v_now where t.attempt_id = fence_start.attempt_id;
      perform relay.ring('fence', v_attempt.cell_id, jsonb_build_object('state', 'started',
        'incarnation', v_attempt.incarnation, 'attempt_id', v_attempt.attempt_id), v_now);
    else
      v_refusal := 'mutation_lease_conflict';
    end if;
  end if;
  return relay.audit('fence_start', v_arguments, coalesce(v_refusal, 'ok'));
end
$$;
comment on function relay_v1.fence_start(uuid) is 'Says that the machine is about to be stopped; the attempt cannot be aborted any more. ok, or why not';
--! EndIncluded fences/fence_start.sql
--! Included fences/commit_refusal.sql
-- Why a fence cannot be committed now, or null if it can. Caller: fence_commit, which holds the cell and its runtime row.
-- Locks: none. Outcomes: those of attempt_refusal; cell_fence_attempt_not_started; cell_fence_admission_enabled;
-- cell_fence_runtime_mismatch; cell_fence_runtime_not_stale (heard less than 45 s ago).
create or replace function relay.commit_refusal(p_attempt relay.fence_attempt, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_state constant text := case when p_attempt.attempt_id is not null then relay.attempt_state(p_attempt, p_now) end;
  v_cell relay.cell;
  v_runtime relay.cell_runtime;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_attempt.cell_id;
  select r.* into v_runtime from relay.cell_runtime r where r.cell_id = p_attempt.cell_id;
  return coalesce(relay.attempt_refusal(v_state), case
    when v_state = 'begun' then 'cell_fence_attempt_not_started'
    when v_cell.cell_id is null then 'cell_not_found'
    when v_cell.admission <> 'existing-only' then 'cell_fence_admission_enabled'
    when v_runtime.incarnation <> p_attempt.incarnation then 'cell_fence_runtime_mismatch'
    when v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs') then 'cell_fence_runtime_not_stale'
  end);
end
$$;
--! EndIncluded fences/commit_refusal.sql
--! Included fences/fence_commit.sql
-- The machine is gone: from now on for 5 min the cell's hosts may leave it. Committing again renews the 5 min and keeps
-- the time of the first. Frees the mutation lease.
-- Caller: operator. Locks: see lock_attempt; then the fence and the mutation lease.
-- Outcomes: ok, forbidden, and those of commit_refusal.
create or replace function relay_v1.fence_commit(attempt_id uuid, evidence jsonb default '{}')
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_commit.attempt_id, fence_commit.evidence);
  v_attempt relay.fence_attempt;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('fence_commit', v_arguments, 'forbidden');
  end if;
  v_attempt := relay.lock_attempt(fence_commit.attempt_id);
  v_now := relay.now();
  v_refusal := relay.commit_refusal(v_attempt, v_now);
  if v_refusal is not null then
    return relay.audit('fence_commit', v_arguments, v_refusal);
  end if;
  update relay.fence_attempt t
  set completed_at = coalesce(t.completed_at, v_now), commit_evidence = fence_commit.evidence
  where t.attempt_id = fence_commit.attempt_id;
  insert into relay.fence (cell_id, attempt_id, incarnation, committed_at, expires_at)
  values (v_attempt.cell_id, v_attempt.attempt_id, v_attempt.incarnation, v_now, v_now + relay.span_of('fenceTtlMs'))
  on conflict on constraint fence_pkey do update
  set attempt_id = excluded.attempt_id, incarnation = excluded.incarnation, committed_at = excluded.committed_at,
    expires_at = excluded.expires_at;
  perform relay.free_mutation_lease(v_attempt.attempt_id);
  perform relay.ring('fence', v_attempt.cell_id, jsonb_build_object('state', 'committed',
    'incarnation', v_attempt.incarnation, 'attempt_id', v_attempt.attempt_id), v_now);
  return relay.audit('fence_commit', v_arguments, 'ok');
end
$$;
comment on function relay_v1.fence_commit(uuid, jsonb) is
  'Says that the machine is gone: for 5 min hosts may leave its cell; again renews. ok, or why not';
--! EndIncluded fences/fence_commit.sql
--! Included fences/fence_abort.sql
-- Gives an attempt up before its start, and frees the mutation lease.
-- Caller: operator. Locks: see lock_attempt; then the mutation lease.
-- Outcomes: ok (again too), forbidden, cell_fence_attempt_not_found, cell_fence_attempt_superseded,
-- cell_fence_apply_may_have_started (it was started: the machine may be gone).
create or replace function relay_v1.fence_abort(attempt_id uuid, reason text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_abort.attempt_id, fence_abort.reason);
  v_attempt relay.fence_attempt;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('fence_abort', v_arguments, 'forbidden');
  end if;
  v_attempt := relay.lock_attempt(fence_abort.attempt_id);
  v_now := relay.now();
  if v_attempt.attempt_id is null or v_attempt.closed_as = 'superseded' then
    return relay.audit('fence_abort', v_arguments, relay.attempt_refusal(v_attempt.closed_as));
  elsif v_attempt.started_at is not null then
    return relay.audit('fence_abort', v_arguments, 'cell_fence_apply_may_have_started');
  elsif v_attempt.closed_at is null then
    update relay.fence_attempt t
    set closed_at = v_now, closed_as = 'aborted', close_reason = fence_abort.reason
    where t.attempt_id = fence_abort.attempt_id;
    perform relay.free_mutation_lease(v_attempt.attempt_id);
    perform relay.ring('fence', v_attempt.cell_id, jsonb_build_object('state', 'aborted',
      'incarnation', v_attempt.incarnation, 'attempt_id', v_attempt.attempt_id), v_now);
  end if;
  return relay.audit('fence_abort', v_arguments, 'ok');
end
$$;
comment on function relay_v1.fence_abort(uuid, text) is 'Gives a fence attempt up before its start. ok, or why not';
--! EndIncluded fences/fence_abort.sql
--! Included fences/fence_release.sql
-- Takes a fence back: hosts may no longer leave the cell by it.
-- Caller: operator. Locks: the cell, its latch (exclusive), its runtime row, the fence.
-- Outcomes: ok, forbidden, cell_fence_attestation_missing (there is none).
create or replace function relay_v1.fence_release(cell_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(fence_release.cell_id);
  v_fence relay.fence;
begin
  if not relay.may_operate() then
    return relay.audit('fence_release', v_arguments, 'forbidden');
  end if;
  perform relay.lock_cell(fence_release.cell_id);
  perform from relay.cell_runtime r where r.cell_id = fence_release.cell_id for update;
  delete from relay.fence f where f.cell_id = fence_release.cell_id returning f.* into v_fence;
  if not found then
    return relay.audit('fence_release', v_arguments, 'cell_fence_attestation_missing');
  end if;
  perform relay.ring('fence', v_fence.cell_id, jsonb_build_object('state', 'released',
    'incarnation', v_fence.incarnation, 'attempt_id', v_fence.attempt_id), relay.now());
  return relay.audit('fence_release', v_arguments, 'ok');
end
$$;
comment on function relay_v1.fence_release(text) is 'Takes a fence back. ok, or why not';
--! EndIncluded fences/fence_release.sql
--! Included fences/fence_status.sql
-- The fence of a cell, its last attempts, newest first, and who holds the fleet's mutation lease.
-- Caller: operator. Locks: none. Outcomes, in `outcome`: ok, forbidden, cell_not_found.
create or replace function relay_v1.fence_status(cell_id text)
returns jsonb
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  c_attempts constant int := 10;
  v_arguments jsonb := jsonb_build_array(fence_status.cell_id);
  v_now timestamptz := relay.now();
begin
  if not relay.may_operate() then
    return jsonb_build_object('outcome', relay.audit('fence_status', v_arguments, 'forbidden'));
  elsif not exists (select from relay.cell c where c.cell_id = fence_status.cell_id) then
    return jsonb_build_object('outcome', relay.audit('fence_status', v_arguments, 'cell_not_found'));
  end if;
  return jsonb_build_object(
    'outcome', relay.audit('fence_status', v_arguments, 'ok'),
    'fenced', relay.is_fenced(fence_status.cell_id, v_now),
    'fence', (select to_jsonb(f) from relay.fence f where f.cell_id = fence_status.cell_id),
    'attempts', (
      select coalesce(jsonb_agg(jsonb_build_object('state', relay.attempt_state(t, v_now)) || to_jsonb(t) order by t.begun_at desc), '[]')
      from (
        select x.* from relay.fence_attempt x where x.cell_id = fence_status.cell_id order by x.begun_at desc limit c_attempts
      ) t),
    'mutation_lease', (select jsonb_build_object('attempt_id', m.attempt_id, 'expires_at', m.expires_at)
      from relay.mutation_lease m where m.expires_at > v_now));
end
$$;
comment on function relay_v1.fence_status(text) is 'The fence of a cell, its last attempts and the mutation lease, as JSON with an outcome';
--! EndIncluded fences/fence_status.sql
--! Included fences/void_fence.sql
-- An accepted heartbeat: the cell lives, so its fence says nothing any more; and if another process than the last one is
-- heard, the open attempts to prove that one gone are superseded. Frees the mutation lease that they held.
-- Caller: heartbeat, which holds the runtime row. Locks: the cell's fence and attempts, the mutation lease.
create or replace function relay.void_fence(p_cell_id text, p_incarnation uuid, p_now timestamptz)
returns void
language plpgsql
as $$
declare
  v_ended record;
begin
  for v_ended in
    with voided as (
      delete from relay.fence f where f.cell_id = p_cell_id returning f.attempt_id, f.incarnation
    ), superseded as (
      update relay.fence_attempt t
      set closed_at = p_now, closed_as = 'superseded'
      where t.cell_id = p_cell_id and t.incarnation <> p_incarnation and t.completed_at is null and t.closed_at is null
      returning t.attempt_id, t.incarnation
    )
    select 'voided' as state, v.attempt_id, v.incarnation from voided v
    union all
    select 'superseded', s.attempt_id, s.incarnation from superseded s
  loop
    perform relay.free_mutation_lease(v_ended.attempt_id);
    perform relay.ring('fence', p_cell_id, jsonb_build_object('state', v_ended.state,
      'incarnation', v_ended.incarnation, 'attempt_id', v_ended.attempt_id), p_now);
  end loop;
end
$$;
--! EndIncluded fences/void_fence.sql
--! Included cells/heartbeat.sql
-- A cell says that it lives and what it carries. That voids its fence, and supersedes attempts to fence an older process.
-- Caller: cell, every 15 s, and after a failure again after 1, 2, 4 s. Locks: cell_runtime (its own row), then setting
-- after an outage, then its fence, its attempts and the mutation lease. Reads the cell without locking it; touches no lease.
-- Outcomes: ok, or a string of heartbeat_refusal, and then nothing is written.
create or replace function relay_v1.heartbeat(
  cell_id text, url text, region text, incarnation uuid, started_at timestamptz, ready boolean, load jsonb)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_cell relay.cell;
  v_before relay.cell_runtime;
  v_refusal text;
  v_now timestamptz;
begin
  if num_nulls(heartbeat.cell_id, heartbeat.incarnation, heartbeat.started_at, heartbeat.ready,
    heartbeat.load ->> 'inclusion_watermark') > 0 then
    perform relay.misuse('heartbeat: an argument or the watermark is missing');
  end if;
  select r.* into v_before from relay.cell_runtime r where r.cell_id = heartbeat.cell_id for update;
  select c.* into v_cell from relay.cell c where c.cell_id = heartbeat.cell_id;
  v_refusal := relay.heartbeat_refusal(v_cell, v_before, heartbeat.url, heartbeat.region, heartbeat.incarnation,
    heartbeat.started_at, heartbeat.load);
  if v_refusal is not null then
    return v_refusal;
  elsif heartbeat.load ->> 'enforced_units' is null then
    perform relay.misuse('heartbeat: enforced_units is missing');
  end if;
  v_now := relay.now();
  perform relay.note_outage(v_now);
  insert into relay.cell_runtime as r (cell_id, incarnation, started_at, ready, heard_at, enforced_units,
    inclusion_watermark, total_connections, in_flight_connections, reserved_units, drain_told, drain_left)
  values (heartbeat.cell_id, heartbeat.incarnation, heartbeat.started_at, heartbeat.ready, v_now,
    (heartbeat.load ->> 'enforced_units')::int, (heartbeat.load ->> 'inclusion_watermark')::bigint,
    (heartbeat.load ->> 'total_connections')::int, (heartbeat.load ->> 'in_flight_connections')::int,
    (heartbeat.load ->> 'reserved_units')::int, (heartbeat.load ->> 'drain_told')::int,
    (heartbeat.load ->> 'drain_left')::int)
  on conflict on constraint cell_runtime_pkey do update
  set incarnation = excluded.incarnation, started_at = excluded.started_at, ready = excluded.ready,
    heard_at = excluded.heard_at, enforced_units = excluded.enforced_units,
    inclusion_watermark = excluded.inclusion_watermark, total_connections = excluded.total_connections,
    in_flight_connections = excluded.in_flight_connections, reserved_units = excluded.reserved_units,
    drain_told = excluded.drain_told, drain_left = excluded.drain_left
  -- two processes may both be the first of a cell: the second then meets a row that it did not lock and check
  where r.incarnation = excluded.incarnation or r.started_at < excluded.started_at;
  if not found then
    return 'stale_cell_incarnation';
  end if;
  perform relay.void_fence(heartbeat.cell_id, heartbeat.incarnation, v_now);
  if (v_before.incarnation, v_before.ready) is distinct from (heartbeat.incarnation, heartbeat.ready) then
    perform relay.ring('incarnation', heartbeat.cell_id,
      jsonb_build_object('incarnation', heartbeat.incarnation, 'ready', heartbeat.ready), v_now);
  end if;
  return 'ok';
end
$$;
comment on function relay_v1.heartbeat(text, text, text, uuid, timestamptz, boolean, jsonb) is
  'A cell says that it lives and what it carries; ok, or why the beat was refused';
--! EndIncluded cells/heartbeat.sql
--! Included cells/cell_orders.sql
-- What the operators want of a cell: admission, mode, flags, and the drain order if it is for this process.
-- Caller: cell, on a doorbell and every 5 s. Locks: none. Outcomes: one row; none if the cell is not registered.
create or replace function relay_v1.cell_orders(cell_id text, incarnation uuid)
returns setof relay_v1.cell_orders_result
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
begin
  return query
  select c.admission, c.admit_mode, c.flags, c.flags_generation,
    case when c.drain_incarnation = cell_orders.incarnation then jsonb_build_object(
      'grace_ms', c.drain_grace_ms, 'pace_ms', c.drain_pace_ms, 'incarnation', c.drain_incarnation,
      'ordered_at', (extract(epoch from c.drain_ordered_at) * 1000)::bigint) end
  from relay.cell c
  where c.cell_id = cell_orders.cell_id;
end
$$;
comment on function relay_v1.cell_orders(text, uuid) is 'What the operators want of a cell: admission, mode, flags, drain order';
--! EndIncluded cells/cell_orders.sql
--! Included seats/activate_control.sql
-- A host has proven itself on a cell: checks its seat once more and makes its lease active. Forgets why it closed
-- last, and that it was unattached. A migration that brought it here is marked, and completed if its old seat is gone.
-- Caller: cell, after the proof, and to take a lease again that a renewal did not find. Locks: the host's row (≤ 500 ms),
-- then its lease, then its migration.
-- Outcomes: active, wrong_cell, wrong_epoch, no_assignment, stale_cell_incarnation, busy.
create or replace function relay_v1.activate_control(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, epoch bigint, generation bigint,
  inclusion_watermark bigint)
returns relay_v1.activate_control_result
language plpgsql
security definer
set search_path = relay, pg_temp
set lock_timeout = '500ms'
as $$
declare
  v_row relay.assignment;
  v_now timestamptz;
  v_expires_at timestamptz;
begin
  if num_nulls(activate_control.incarnation, activate_control.epoch, activate_control.generation,
    activate_control.inclusion_watermark) > 0 then
    perform relay.misuse('activate_control: incarnation, epoch, generation and inclusion_watermark are needed');
  end if;
  begin
    select a.* into v_row
    from relay.assignment a
    where a.user_id = activate_control.user_id and a.relay_host_id = activate_control.relay_host_id
    for no key update;
    if not relay.is_incarnation(activate_control.cell_id, activate_control.incarnation) then
      return ('stale_cell_incarnation', null)::relay_v1.activate_control_result;
    elsif v_row.cell_id is null then
      return ('no_assignment', null)::relay_v1.activate_control_result;
    elsif v_row.cell_id <> activate_control.cell_id then
      return ('wrong_cell', null)::relay_v1.activate_control_result;
    elsif v_row.epoch <> activate_control.epoch then
      return ('wrong_epoch', null)::relay_v1.activate_control_result;
    end if;
    v_now := relay.now();
    insert into relay.lease as l (user_id, relay_host_id, cell_id, epoch, incarnation, generation, state, units,
      inclusion_watermark, expires_at)
    values (v_row.user_id, v_row.relay_host_id, v_row.cell_id, v_row.epoch, activate_control.incarnation,
      activate_control.generation, 'active', relay.limit_of('controlUnits'), activate_control.inclusion_watermark,
      v_now + relay.span_of('renewedLeaseMs'))
    on conflict on constraint lease_pkey do update
    set epoch = excluded.epoch, incarnation = excluded.incarnation, generation = excluded.generation,
      state = excluded.state, units = excluded.units, inclusion_watermark = excluded.inclusion_watermark,
      expires_at = greatest(l.expires_at, excluded.expires_at), retire_until = null
    returning l.expires_at into v_expires_at;
    update relay.assignment a
    set last_activity_at = v_now, unattached_since = null, last_close_reason = null, last_close_reason_at = null
    where a.user_id = v_row.user_id and a.relay_host_id = v_row.relay_host_id;
    perform relay.settle_migration(v_row.user_id, v_row.relay_host_id, v_now);
    return ('active', v_expires_at)::relay_v1.activate_control_result;
  exception
    when lock_not_available or deadlock_detected then
      return ('busy', null)::relay_v1.activate_control_result;
  end;
end
$$;
comment on function relay_v1.activate_control(text, text, text, uuid, bigint, bigint, bigint) is
  'Checks the seat of a host that has proven itself and makes its lease active';
--! EndIncluded seats/activate_control.sql
--! Included seats/release_lease.sql
-- Ends the lease of a control that closed, and keeps why it closed. A late close of an older socket matches no lease any
-- more, and frees nothing. The last of the old seat completes a migration.
-- Caller: cell. Locks: the host's row (≤ 500 ms, then SQLSTATE 55P03: the lease ends by itself), then its lease, then its
-- migration.
-- Outcomes: released, not_held, stale_cell_incarnation.
create or replace function relay_v1.release_lease(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, epoch bigint, generation bigint,
  close_reason text default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
set lock_timeout = '500ms'
as $$
declare
  v_row relay.assignment;
  v_now timestamptz;
begin
  select a.* into v_row
  from relay.assignment a
  where a.user_id = release_lease.user_id and a.relay_host_id = release_lease.relay_host_id
  for no key update;
  if not relay.is_incarnation(release_lease.cell_id, release_lease.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  delete from relay.lease l
  where l.user_id = release_lease.user_id and l.relay_host_id = release_lease.relay_host_id
    and l.cell_id = release_lease.cell_id and l.incarnation = release_lease.incarnation
    and l.epoch = release_lease.epoch and l.generation = release_lease.generation;
  if not found then
    -- it was swept before the close came: the reason counts, unless somebody is seated there by now
    update relay.assignment a
    set last_close_reason = release_lease.close_reason, last_close_reason_at = relay.now()
    where a.user_id = release_lease.user_id and a.relay_host_id = release_lease.relay_host_id
      and a.cell_id = release_lease.cell_id and a.epoch = release_lease.epoch and release_lease.close_reason is not null
      and not exists (
        select from relay.lease l
        where l.user_id = a.user_id and l.relay_host_id = a.relay_host_id and l.cell_id = a.cell_id);
    return 'not_held';
  end if;
  v_now := relay.now();
  if v_row.cell_id = release_lease.cell_id and v_row.epoch = release_lease.epoch then
    update relay.assignment a
    set last_activity_at = v_now, last_close_reason = release_lease.close_reason,
      last_close_reason_at = case when release_lease.close_reason is not null then v_now end
    where a.user_id = release_lease.user_id and a.relay_host_id = release_lease.relay_host_id;
  else
    perform relay.settle_migration(release_lease.user_id, release_lease.relay_host_id, v_now);
  end if;
  insert into relay.change (kind, from_cell, user_id, relay_host_id, epoch, detail, at)
  values ('lease_ended', release_lease.cell_id, release_lease.user_id, release_lease.relay_host_id, release_lease.epoch,
    jsonb_build_object('reason', 'released', 'close_reason', release_lease.close_reason), v_now);
  return 'released';
end
$$;
comment on function relay_v1.release_lease(text, text, text, uuid, bigint, bigint, text) is
  'Ends the lease of a control that closed, and keeps why it closed';
--! EndIncluded seats/release_lease.sql
--! Included sweeps/sweep_space.sql
-- First key of the advisory locks under which fenced cells are swept; the second is cell.latch. Apart from the latches,
-- which hosts wait for. Caller: sweep_dead_cells.
create or replace function relay.sweep_space()
returns int
language sql immutable parallel safe
as $$ select 1330790242 $$;
--! EndIncluded sweeps/sweep_space.sql
--! Included sweeps/sweep_dead_cell.sql
-- One pass over the hosts of one fenced cell. A host that is locked or for which assign is busy is left for a later pass;
-- without room in the fleet the pass ends. Caller: sweep_dead_cells. Locks: rows of hosts, skipped if locked; then see
-- assign. Outcome: hosts moved.
create or replace function relay.sweep_dead_cell(p_cell_id text, p_max_hosts int)
returns int
language plpgsql
as $$
declare
  v_host record;
  v_answer relay_v1.assign_result;
  v_moved int := 0;
  v_share int;
begin
  select least(p_max_hosts, ceil(count(*) * relay.limit_of('deadCellSweepPercent') / 100.0))::int into v_share
  from relay.assignment a
  where a.cell_id = p_cell_id;
  for v_host in
    with drawn as materialized (
      select a.user_id, a.relay_host_id from relay.assignment a where a.cell_id = p_cell_id order by random() limit v_share
    )
    select a.user_id, a.relay_host_id
    from drawn d
    join relay.assignment a on a.user_id = d.user_id and a.relay_host_id = d.relay_host_id and a.cell_id = p_cell_id
    for no key update of a skip locked
  loop
    v_answer := relay_v1.assign(v_host.user_id, v_host.relay_host_id, requested_by => 'sweep');
    v_moved := v_moved + v_answer.moved::int;
    exit when v_answer.outcome = 'no_capacity';
  end loop;
  return v_moved;
end
$$;
--! EndIncluded sweeps/sweep_dead_cell.sql
--! Included sweeps/sweep_dead_cells.sql
-- Moves the hosts of fenced cells that do not ask themselves: in random order, at most 15 % of a cell's a pass, each by
-- the table of assign as a sweep (rule 12). One director at a time sweeps a cell, so that no two wait for each other.
-- Caller: director, on a timer. Locks: an advisory lock of its own a cell, only tried; rows of hosts, skipped if locked;
-- then see assign. Outcome: hosts moved.
create or replace function relay_v1.sweep_dead_cells(max_rows int default 200)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_cell record;
  v_left int := sweep_dead_cells.max_rows;
  v_moved int;
begin
  -- without a fenced cell no host is read
  for v_cell in
    select f.cell_id, c.latch
    from relay.fence f
    join relay.cell c on c.cell_id = f.cell_id
    where relay.is_fenced(f.cell_id, v_now) and pg_try_advisory_xact_lock(relay.sweep_space(), c.latch)
    order by random()
  loop
    exit when v_left <= 0;
    v_moved := relay.sweep_dead_cell(v_cell.cell_id, v_left);
    v_left := v_left - v_moved;
  end loop;
  return sweep_dead_cells.max_rows - v_left;
end
$$;
comment on function relay_v1.sweep_dead_cells(int) is 'Moves hosts off fenced cells, at most 15 % of a cell''s; answers how many';
--! EndIncluded sweeps/sweep_dead_cells.sql
--! Included sweeps/sweep_migrations.sql
-- Marks, completes, gives up or takes back the open migrations for which it is time, and deletes those that ended and are
-- older than 7 d. Caller: director, on a timer. Locks: rows of hosts, then migrations, both skipped if locked; see
-- advance_migration. Outcome: migrations that ended.
create or replace function relay_v1.sweep_migrations(max_rows int default 500)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_host record;
  v_ended int := 0;
begin
  for v_host in
    with due as materialized (
      select m.user_id, m.relay_host_id
      from relay.migration m
      where m.completed_at is null and m.aborted_at is null and relay.migration_step(m, v_now) <> 'wait'
      limit sweep_migrations.max_rows
    )
    select a.user_id, a.relay_host_id
    from relay.assignment a
    where (a.user_id, a.relay_host_id) in (select d.user_id, d.relay_host_id from due d)
    order by a.user_id, a.relay_host_id
    for no key update skip locked
  loop
    v_ended := v_ended + relay.advance_migration(v_host.user_id, v_host.relay_host_id)::int;
  end loop;
  with old as materialized (
    select m.user_id, m.relay_host_id, m.epoch
    from relay.migration m
    where m.opened_at < v_now - relay.span_of('migrationRetentionMs')
      and num_nonnulls(m.completed_at, m.aborted_at) > 0
    limit sweep_migrations.max_rows
    for update skip locked
  )
  delete from relay.migration m
  using old o
  where m.user_id = o.user_id and m.relay_host_id = o.relay_host_id and m.epoch = o.epoch;
  return v_ended;
end
$$;
comment on function relay_v1.sweep_migrations(int) is 'Ends the open migrations for which it is time; answers how many';
--! EndIncluded sweeps/sweep_migrations.sql
--! Included views/drains_rows.sql
-- The rows of the view relay_v1.drains. What is left is counted from the leases, now; what was told only the process
-- knows, and says with its heartbeat. Caller: view drains. Locks: none.
create or replace function relay.drains_rows()
returns table (
  cell_id text, region text, incarnation uuid, current boolean, ordered_at timestamptz, age interval, grace_ms int,
  pace_ms int, hosts int, seated int, promised int, retiring int, told int, "left" int, heard_age interval,
  progress numeric)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.region, c.drain_incarnation, coalesce(r.incarnation = c.drain_incarnation, false), c.drain_ordered_at,
    v_now - c.drain_ordered_at, c.drain_grace_ms, c.drain_pace_ms, c.drain_hosts, h.seated, h.promised, h.retiring,
    case when r.incarnation = c.drain_incarnation then r.drain_told end,
    case when r.incarnation = c.drain_incarnation then r.drain_left end,
    v_now - r.heard_at,
    case when h.seated + h.promised = 0 then 1.000
      else round(greatest(1 - (h.seated + h.promised)::numeric / greatest(c.drain_hosts, 1), 0), 3) end
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  cross join lateral (
    select count(*) filter (where l.state = 'active')::int as seated,
      count(*) filter (where l.state = 'granted')::int as promised,
      count(*) filter (where l.state = 'retiring')::int as retiring
    from relay.lease l
    where l.cell_id = c.cell_id and l.expires_at > v_now) h
  where c.drain_incarnation is not null;
end
$$;
--! EndIncluded views/drains_rows.sql
--! Included views/drains.sql
-- Every cell that is told to drain, and how far it is. Reader: monitor, operator, director.
create view relay_v1.drains as
select d.* from relay.drains_rows() d order by d.cell_id;
comment on view relay_v1.drains is 'Cells that are told to drain, and how far each is';
comment on column relay_v1.drains.current is 'Whether the order is for the process that runs; a newer one ignores it';
comment on column relay_v1.drains.hosts is 'Hosts there when the drain was ordered';
comment on column relay_v1.drains.seated is 'Hosts that still have their seat';
comment on column relay_v1.drains.promised is 'Hosts that were promised a seat and are not attached';
comment on column relay_v1.drains.retiring is 'Hosts that were moved away, in their grace';
comment on column relay_v1.drains.told is 'Hosts that the process had told by its last heartbeat';
comment on column relay_v1.drains."left" is 'Hosts still seated on the process by its last heartbeat, those in their grace too';
comment on column relay_v1.drains.progress is '0 to 1: the share of the hosts that no longer has a seat';
--! EndIncluded views/drains.sql
--! Included views/open_migrations_rows.sql
-- The rows of the view relay_v1.open_migrations. Caller: view open_migrations. Locks: none.
create or replace function relay.open_migrations_rows()
returns table (
  user_id text, relay_host_id text, epoch bigint, source_cell text, target_cell text, pinned boolean, registered boolean,
  age interval, expires_in interval, source_lease text, target_lease text, next_step text)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select m.user_id, m.relay_host_id, m.epoch, m.source_cell, m.target_cell, m.pinned_at is not null,
    m.registered_at is not null, v_now - m.opened_at, m.expires_at - v_now, s.state, t.state,
    relay.migration_step(m, v_now)
  from relay.migration m
  left join relay.lease s on s.user_id = m.user_id and s.relay_host_id = m.relay_host_id and s.cell_id = m.source_cell
    and s.expires_at > v_now
  left join relay.lease t on t.user_id = m.user_id and t.relay_host_id = m.relay_host_id and t.cell_id = m.target_cell
    and t.expires_at > v_now
  where m.completed_at is null and m.aborted_at is null;
end
$$;
--! EndIncluded views/open_migrations_rows.sql
--! Included views/open_migrations.sql
-- Every open migration and what it waits for. Reader: monitor, operator, director.
create view relay_v1.open_migrations as
select m.* from relay.open_migrations_rows() m order by m.source_cell, m.user_id, m.relay_host_id;
comment on view relay_v1.open_migrations is 'Hosts that were moved off a cell and are not done: seated on the target, gone from the source';
comment on column relay_v1.open_migrations.pinned is 'The source was told to drain: the host leaves the target only by a fence or a later move';
comment on column relay_v1.open_migrations.registered is 'The host has been seated on the target';
comment on column relay_v1.open_migrations.source_lease is 'What the host still holds on the source';
comment on column relay_v1.open_migrations.target_lease is 'What the host holds on the target';
comment on column relay_v1.open_migrations.next_step is 'What the next sweep does: wait, register, complete, roll-back, give-up, overtaken';
--! EndIncluded views/open_migrations.sql
--! Included views/fences_rows.sql
-- The rows of the view relay_v1.fences: of each cell the fence, and the attempt that is open or made it.
-- Caller: view fences. Locks: none.
create or replace function relay.fences_rows()
returns table (
  cell_id text, incarnation uuid, state text, fenced boolean, expires_in interval, attempt_id uuid, operation_id text,
  reason text, begun_at timestamptz, started_at timestamptz, completed_at timestamptz, committed_at timestamptz,
  lease_expires_in interval)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select t.cell_id, t.incarnation, relay.attempt_state(t, v_now),
    f.attempt_id is not null and relay.is_fenced(t.cell_id, v_now), f.expires_at - v_now, t.attempt_id, t.operation_id,
    t.reason, t.begun_at, t.started_at, t.completed_at, f.committed_at, m.expires_at - v_now
  from relay.fence_attempt t
  left join relay.fence f on f.attempt_id = t.attempt_id
  left join relay.mutation_lease m on m.attempt_id = t.attempt_id
  where t.closed_at is null and (t.completed_at is null or f.attempt_id is not null);
end
$$;
--! EndIncluded views/fences_rows.sql
--! Included views/fences.sql
-- Fences, and the attempts to prove that a process is gone. Reader: monitor, operator, director.
create view relay_v1.fences as
select f.* from relay.fences_rows() f order by f.cell_id, f.begun_at;
comment on view relay_v1.fences is 'Fences of cells, and open attempts at one';
comment on column relay_v1.fences.state is 'begun, expired, started or completed';
comment on column relay_v1.fences.fenced is 'Whether hosts may leave the cell by it now';
comment on column relay_v1.fences.expires_in is 'Until the fence ends; committing again renews it';
comment on column relay_v1.fences.lease_expires_in is 'Until the fleet''s mutation lease of the attempt ends; null if it holds none';
--! EndIncluded views/fences.sql
-- drains and fences: end

-- modes: begin
alter table relay.cell add column admission_generation bigint not null default 0;
comment on column relay.cell.admission_generation is 'Rises with every change of admission; an operator names the one read, so that two do not undo each other';

create table relay.cell_effective_mode (
  cell_id text not null,
  incarnation uuid not null,
  mode text not null,
  updated_at timestamptz not null,
  constraint cell_effective_mode_pkey primary key (cell_id),
  constraint cell_effective_mode_known check (mode in ('db', 'reserve'))
) with (fillfactor = 80);
comment on table relay.cell_effective_mode is 'How each process really admits hosts, as it says itself: a reserve cell that tripped says db';
comment on column relay.cell_effective_mode.cell_id is 'The cell; no foreign key, which would lock its row';
comment on column relay.cell_effective_mode.incarnation is 'The process that wrote it';
comment on column relay.cell_effective_mode.mode is 'db: it asks Postgres before it admits a host; reserve: it admits from bookings and memory';
comment on column relay.cell_effective_mode.updated_at is 'When it last said so: 45 s count for placement, 10 min for a trip slot';

--! Included modes/is_integer_within.sql
-- Whether a JSON value is a whole number within bounds, both included. Caller: flags_are_valid. Locks: none.
create or replace function relay.is_integer_within(p_value jsonb, p_least int, p_most int)
returns boolean
language plpgsql immutable
as $$
begin
  return case when jsonb_typeof(p_value) = 'number'
    then (p_value)::numeric = trunc((p_value)::numeric) and (p_value)::numeric between p_least and p_most
    else false end;
end
$$;
--! EndIncluded modes/is_integer_within.sql
--! Included modes/flags_are_valid.sql
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
--! EndIncluded modes/flags_are_valid.sql
--! Included modes/effective_mode.sql
-- How the running process of a cell says that it admits hosts: db, reserve, or null. A process that is not heard says
-- nothing. Caller: admit_mode_refusal, flags_refusal. Locks: none.
create or replace function relay.effective_mode(p_cell_id text, p_now timestamptz)
returns text
language plpgsql stable
as $$
begin
  return (
    select e.mode
    from relay.cell_effective_mode e
    join relay.cell_runtime r on r.cell_id = e.cell_id and r.incarnation = e.incarnation
    where e.cell_id = p_cell_id and r.heard_at > p_now - relay.span_of('heartbeatTtlMs'));
end
$$;
--! EndIncluded modes/effective_mode.sql
--! Included modes/admit_mode_refusal.sql
-- Why the recorded mode of a cell may not change: first match. The record and what the process does must never disagree
-- in the direction that loses hosts: while it says reserve nobody is moved off the cell for a missing lease.
-- Caller: set_admit_mode, which holds the cell. Locks: none.
create or replace function relay.admit_mode_refusal(p_cell relay.cell, p_mode text, p_now timestamptz)
returns text
language plpgsql stable
as $$
begin
  return case
    when p_cell.cell_id is null then 'cell_not_found'
    when p_mode = 'reserve' and relay.has_open_migration(p_cell.cell_id) then 'cell_has_open_migration'
    when p_mode = 'reserve' and relay.has_open_drain(p_cell.cell_id) then 'cell_has_open_drain'
    -- back to db: the flags first, then the process gives each host a lease, then the record
    when p_mode = 'db' and p_cell.flags ->> 'admitMode' = 'reserve' then 'cell_flags_admit_reserve'
    when p_mode = 'db' and p_cell.admit_mode = 'reserve' and relay.effective_mode(p_cell.cell_id, p_now) = 'reserve'
      then 'cell_admits_reserve'
  end;
end
$$;
--! EndIncluded modes/admit_mode_refusal.sql
--! Included modes/set_admit_mode.sql
-- Records how a cell admits hosts. To reserve: record it here first, then set the flag. Back to db: the flag first, and
-- here once the process says that every host has its lease (view trip_slots, effective_mode).
-- Caller: operator. Locks: the cell, its latch (exclusive): a move off a dead reserve cell (rule 13) that holds the latch
-- is committed first, and one that waits reads the new mode.
-- Outcomes: ok, forbidden, cell_not_found, cell_has_open_migration, cell_has_open_drain, cell_flags_admit_reserve,
-- cell_admits_reserve.
create or replace function relay_v1.set_admit_mode(cell_id text, mode text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(set_admit_mode.cell_id, set_admit_mode.mode);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if set_admit_mode.mode in ('db', 'reserve') is not true then
    perform relay.misuse('set_admit_mode: mode is db or reserve');
  elsif not relay.may_operate() then
    return relay.audit('set_admit_mode', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(set_admit_mode.cell_id);
  v_now := relay.now();
  v_refusal := relay.admit_mode_refusal(v_cell, set_admit_mode.mode, v_now);
  if v_refusal is not null then
    return relay.audit('set_admit_mode', v_arguments, v_refusal);
  end if;
  if v_cell.admit_mode <> set_admit_mode.mode then
    update relay.cell c set admit_mode = set_admit_mode.mode where c.cell_id = v_cell.cell_id;
    perform relay.ring('mode', v_cell.cell_id,
      jsonb_build_object('from', v_cell.admit_mode, 'to', set_admit_mode.mode), v_now);
  end if;
  return relay.audit('set_admit_mode', v_arguments, 'ok');
end
$$;
comment on function relay_v1.set_admit_mode(text, text) is
  'Records whether a cell admits by the database (db) or from bookings and memory (reserve). ok, or why not';
--! EndIncluded modes/set_admit_mode.sql
--! Included modes/flags_refusal.sql
-- Why the flags of a cell may not be written: first match.
-- Caller: set_cell_flags, which holds the cell. Locks: none.
create or replace function relay.flags_refusal(
  p_cell relay.cell, p_flags jsonb, p_expected_generation bigint, p_now timestamptz)
returns text
language plpgsql stable
as $$
begin
  return case
    when p_cell.cell_id is null then 'cell_not_found'
    when p_cell.flags_generation <> p_expected_generation then 'cell_flags_generation_mismatch'
    when not relay.flags_are_valid(p_flags) then 'cell_flags_invalid'
    when p_flags ->> 'admitMode' = 'reserve' then case
      when p_cell.admit_mode <> 'reserve' then 'cell_not_in_reserve_mode'
      -- a new generation that keeps reserve would re-arm a cell that tripped, by accident: go through db
      when p_cell.flags ->> 'admitMode' = 'reserve' and relay.effective_mode(p_cell.cell_id, p_now) = 'db' then 'cell_tripped'
    end
  end;
end
$$;
--! EndIncluded modes/flags_refusal.sql
--! Included modes/set_cell_flags.sql
-- Replaces the flags of a cell, as their next generation. The cell reads them on the doorbell, and every 5 s without.
-- Two operators: name the generation you read, 0 at first, and the later of two writes is refused.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, cell_flags_generation_mismatch, cell_flags_invalid (a known flag with a value
-- that cells do not accept), cell_not_in_reserve_mode (set_admit_mode comes first), cell_tripped (write db, then reserve).
create or replace function relay_v1.set_cell_flags(cell_id text, flags jsonb, expected_generation bigint)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(set_cell_flags.cell_id, set_cell_flags.flags,
    set_cell_flags.expected_generation);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if set_cell_flags.expected_generation is null then
    perform relay.misuse('set_cell_flags: expected_generation is needed, 0 for the first flags');
  elsif not relay.may_operate() then
    return relay.audit('set_cell_flags', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(set_cell_flags.cell_id);
  v_now := relay.now();
  v_refusal := relay.flags_refusal(v_cell, set_cell_flags.flags, set_cell_flags.expected_generation, v_now);
  if v_refusal is not null then
    return relay.audit('set_cell_flags', v_arguments, v_refusal);
  end if;
  update relay.cell c
  set flags = set_cell_flags.flags, flags_generation = c.flags_generation + 1
  where c.cell_id = v_cell.cell_id;
  perform relay.ring('flags', v_cell.cell_id, jsonb_build_object('generation', v_cell.flags_generation + 1), v_now);
  return relay.audit('set_cell_flags', v_arguments, 'ok');
end
$$;
comment on function relay_v1.set_cell_flags(text, jsonb, bigint) is
  'Replaces the flags of a cell if their generation is still the expected one. ok, or why not';
--! EndIncluded modes/set_cell_flags.sql
--! Included modes/write_effective_mode.sql
-- Writes what a process really does, and says so if that is new. The incarnation is looked at once more under the lock: a
-- process that was replaced while it waited must not write over its successor.
-- Caller: record_effective_mode, claim_trip_slot. Locks: the cell's own row of cell_effective_mode.
-- Outcome: whether it was written.
create or replace function relay.write_effective_mode(p_cell_id text, p_incarnation uuid, p_mode text, p_now timestamptz)
returns boolean
language plpgsql
as $$
declare
  v_before text;
begin
  select e.mode into v_before from relay.cell_effective_mode e where e.cell_id = p_cell_id for update;
  if not relay.is_incarnation(p_cell_id, p_incarnation) then
    return false;
  end if;
  insert into relay.cell_effective_mode as e (cell_id, incarnation, mode, updated_at)
  values (p_cell_id, p_incarnation, p_mode, p_now)
  on conflict on constraint cell_effective_mode_pkey do update
  set incarnation = excluded.incarnation, mode = excluded.mode, updated_at = excluded.updated_at;
  if v_before is distinct from p_mode then
    perform relay.ring('effective_mode', p_cell_id, jsonb_build_object('from', v_before, 'to', p_mode), p_now);
  end if;
  return true;
end
$$;
--! EndIncluded modes/write_effective_mode.sql
--! Included modes/record_effective_mode.sql
-- A cell says how its process really admits hosts: at every change, and every 15 s while its flags say reserve.
-- Caller: cell. Locks: its own row. Outcomes: ok, stale_cell_incarnation (another process was heard last).
create or replace function relay_v1.record_effective_mode(cell_id text, incarnation uuid, mode text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
begin
  if record_effective_mode.mode in ('db', 'reserve') is not true then
    perform relay.misuse('record_effective_mode: mode is db or reserve');
  elsif not relay.is_incarnation(record_effective_mode.cell_id, record_effective_mode.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  return case
    when relay.write_effective_mode(record_effective_mode.cell_id, record_effective_mode.incarnation,
      record_effective_mode.mode, relay.now()) then 'ok'
    else 'stale_cell_incarnation'
  end;
end
$$;
comment on function relay_v1.record_effective_mode(text, uuid, text) is
  'A cell says how its process really admits hosts: db or reserve';
--! EndIncluded modes/record_effective_mode.sql
--! Included modes/trip_space.sql
-- The advisory lock under which trip slots are claimed, one claim at a time in the whole fleet. One key: apart from the
-- latches, which have two. Caller: claim_trip_slot.
create or replace function relay.trip_space()
returns bigint
language sql immutable parallel safe
as $$ select 1330790243::bigint $$;
--! EndIncluded modes/trip_space.sql
--! Included modes/holds_trip_slot.sql
-- Whether a cell runs on the database though it is recorded as reserve: it holds a trip slot. Neither a heartbeat nor
-- the process is asked: in an outage of what hears them all slots would look free. A holder silent for 10 min is none.
-- Caller: claim_trip_slot, view trip_slots. Locks: none.
create or replace function relay.holds_trip_slot(
  p_admit_mode text, p_effective relay.cell_effective_mode, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return coalesce(p_admit_mode = 'reserve' and p_effective.mode = 'db'
    and p_effective.updated_at > p_now - relay.span_of('tripSlotTtlMs'), false);
end
$$;
--! EndIncluded modes/holds_trip_slot.sql
--! Included modes/claim_trip_slot.sql
-- A reserve cell that has heard from no director asks whether it may run on the database: at most `slots` cells do at
-- once (P7). Never waits. The cell's own row does not count, so a claim may be sent again after a lost reply.
-- Caller: cell, while HELD every 30 s. Locks: the claims' advisory lock, tried; its own row of cell_effective_mode.
-- Outcomes: granted (its row says db now), full, busy (another claim is under way, or nobody can be judged yet after an
-- outage), stale_cell_incarnation.
create or replace function relay_v1.claim_trip_slot(cell_id text, incarnation uuid, slots int)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz;
begin
  if claim_trip_slot.slots between 0 and 64 is not true then
    perform relay.misuse('claim_trip_slot: slots is 0 to 64');
  elsif not relay.is_incarnation(claim_trip_slot.cell_id, claim_trip_slot.incarnation) then
    return 'stale_cell_incarnation';
  elsif not pg_try_advisory_xact_lock(relay.trip_space()) then
    return 'busy';
  end if;
  v_now := relay.now();
  if not relay.hearing(v_now) then
    return 'busy';
  elsif claim_trip_slot.slots <= (
    select count(*)
    from relay.cell_effective_mode e
    join relay.cell c on c.cell_id = e.cell_id
    where e.cell_id <> claim_trip_slot.cell_id and relay.holds_trip_slot(c.admit_mode, e, v_now)) then
    return 'full';
  end if;
  return case
    when relay.write_effective_mode(claim_trip_slot.cell_id, claim_trip_slot.incarnation, 'db', v_now) then 'granted'
    else 'stale_cell_incarnation'
  end;
end
$$;
comment on function relay_v1.claim_trip_slot(text, uuid, int) is
  'Asks for one of so many trip slots: granted, full, busy or stale_cell_incarnation';
--! EndIncluded modes/claim_trip_slot.sql
--! Included cells/change_admission.sql
-- Writes what a cell may take, with the next generation of its admission, and says so.
-- Caller: set_admission, isolate_for_roll, restore_after_roll, which hold the cell (lock_cell). Locks: none of its own.
create or replace function relay.change_admission(
  p_cell relay.cell, p_admission text, p_roll_isolated_at timestamptz, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  update relay.cell c
  set admission = p_admission, roll_isolated_at = p_roll_isolated_at, admission_generation = c.admission_generation + 1
  where c.cell_id = p_cell.cell_id;
  perform relay.ring('admission', p_cell.cell_id, jsonb_build_object('from', p_cell.admission, 'to', p_admission,
    'generation', p_cell.admission_generation + 1,
    'roll_isolated_at', (extract(epoch from p_roll_isolated_at) * 1000)::bigint), p_now);
end
$$;
--! EndIncluded cells/change_admission.sql
--! Included cells/admission_refusal.sql
-- Why the admission of a cell may not be changed, whatever to: first match.
-- Caller: set_admission, isolate_for_roll, restore_after_roll. Locks: none.
-- Outcomes: cell_not_found, admission_selector_generation_mismatch (another operator was here meanwhile), null.
create or replace function relay.admission_refusal(p_cell relay.cell, p_expected_generation bigint)
returns text
language plpgsql immutable
as $$
begin
  return case
    when p_cell.cell_id is null then 'cell_not_found'
    when p_cell.admission_generation <> p_expected_generation then 'admission_selector_generation_mismatch'
  end;
end
$$;
--! EndIncluded cells/admission_refusal.sql
--! Included cells/set_admission.sql
-- Sets what a cell takes: general (new hosts), migration-only (its own and migrated ones), existing-only (it is being
-- emptied). The roll stamp stays while the cell is migration-only, and goes with any other admission.
-- Two operators: name the generation you read in the view fleet, and the later of two writes is refused.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, admission_selector_generation_mismatch, cell_has_open_drain (a cell whose
-- process is told to drain cannot take new hosts: cancel_drain first).
create or replace function relay_v1.set_admission(cell_id text, admission text, expected_generation bigint default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(set_admission.cell_id, set_admission.admission,
    set_admission.expected_generation);
  v_cell relay.cell;
  v_refusal text;
begin
  if set_admission.admission in ('general', 'migration-only', 'existing-only') is not true then
    perform relay.misuse('set_admission: admission is general, migration-only or existing-only');
  elsif not relay.may_operate() then
    return relay.audit('set_admission', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(set_admission.cell_id);
  v_refusal := coalesce(relay.admission_refusal(v_cell, set_admission.expected_generation),
    case when set_admission.admission = 'general' and relay.has_open_drain(v_cell.cell_id) then 'cell_has_open_drain' end);
  if v_refusal is not null then
    return relay.audit('set_admission', v_arguments, v_refusal);
  end if;
  if v_cell.admission <> set_admission.admission then
    perform relay.change_admission(v_cell, set_admission.admission,
      case when set_admission.admission = 'migration-only' then v_cell.roll_isolated_at end, relay.now());
  end if;
  return relay.audit('set_admission', v_arguments, 'ok');
end
$$;
comment on function relay_v1.set_admission(text, text, bigint) is
  'Sets what a cell takes: general, migration-only or existing-only. ok, or why not';
--! EndIncluded cells/set_admission.sql
--! Included cells/isolate_for_roll.sql
-- Sets a cell apart for the replacement of its process: migration-only, with a stamp of when. Done again it keeps the
-- first stamp, so that a wave that failed half-way does not make the new process look like the old one (rule 10); one that
-- is 2 h old and means nothing any more is replaced.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, admission_selector_generation_mismatch, admission_selector_legacy_reenable
-- (an existing-only cell is being emptied: the restore that ends a roll would open it again).
create or replace function relay_v1.isolate_for_roll(cell_id text, expected_generation bigint default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(isolate_for_roll.cell_id, isolate_for_roll.expected_generation);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('isolate_for_roll', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(isolate_for_roll.cell_id);
  v_refusal := coalesce(relay.admission_refusal(v_cell, isolate_for_roll.expected_generation),
    case when v_cell.admission = 'existing-only' then 'admission_selector_legacy_reenable' end);
  if v_refusal is not null then
    return relay.audit('isolate_for_roll', v_arguments, v_refusal);
  end if;
  v_now := relay.now();
  if (v_now - v_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true then
    perform relay.change_admission(v_cell, 'migration-only', v_now, v_now);
  end if;
  return relay.audit('isolate_for_roll', v_arguments, 'ok');
end
$$;
comment on function relay_v1.isolate_for_roll(text, bigint) is
  'Sets a cell apart for the replacement of its process, with a stamp that is kept for 2 h. ok, or why not';
--! EndIncluded cells/isolate_for_roll.sql
--! Included cells/restore_after_roll.sql
-- Ends a roll: the cell is general again, without stamp and without drain order.
-- Caller: operator. Locks: the cell, its latch (exclusive).
-- Outcomes: ok, forbidden, cell_not_found, admission_selector_generation_mismatch, cell_not_isolated (it has no stamp).
create or replace function relay_v1.restore_after_roll(cell_id text, expected_generation bigint default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(restore_after_roll.cell_id, restore_after_roll.expected_generation);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('restore_after_roll', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(restore_after_roll.cell_id);
  v_refusal := coalesce(relay.admission_refusal(v_cell, restore_after_roll.expected_generation),
    case when v_cell.roll_isolated_at is null then 'cell_not_isolated' end);
  if v_refusal is not null then
    return relay.audit('restore_after_roll', v_arguments, v_refusal);
  end if;
  v_now := relay.now();
  if v_cell.drain_incarnation is not null then
    update relay.cell c
    set drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null, drain_ordered_at = null, drain_hosts = null
    where c.cell_id = v_cell.cell_id;
    perform relay.ring('drain', v_cell.cell_id,
      jsonb_build_object('state', 'cancelled', 'incarnation', v_cell.drain_incarnation), v_now);
  end if;
  perform relay.change_admission(v_cell, 'general', null, v_now);
  return relay.audit('restore_after_roll', v_arguments, 'ok');
end
$$;
comment on function relay_v1.restore_after_roll(text, bigint) is
  'Ends a roll: the cell takes new hosts again and its drain order is gone. ok, or why not';
--! EndIncluded cells/restore_after_roll.sql
--! Included cells/retire_refusal.sql
-- What is still on a cell that is to be forgotten: first match. A host that was idle for 24 h does not count: it is placed
-- anew when it asks (rule 2), wherever its row points.
-- Caller: retire_cell. Locks: none.
create or replace function relay.retire_refusal(p_cell relay.cell, p_now timestamptz)
returns text
language plpgsql stable
as $$
begin
  return case
    when p_cell.cell_id is null then 'cell_not_found'
    when p_cell.admit_mode = 'reserve' then 'cell_in_reserve_mode'
    when p_cell.admission <> 'existing-only' then 'cell_admission_enabled'
    when relay.has_open_migration(p_cell.cell_id) then 'cell_has_open_migration'
    when exists (select from relay.fence_attempt t
      where t.cell_id = p_cell.cell_id and relay.attempt_state(t, p_now) in ('begun', 'started')) then 'cell_has_open_fence'
    when exists (select from relay.assignment a
      where a.cell_id = p_cell.cell_id and a.last_activity_at > p_now - relay.span_of('dormantTtlMs'))
      or exists (select from relay.lease l where l.cell_id = p_cell.cell_id and l.expires_at > p_now) then 'cell_has_hosts'
    when exists (select from relay.cell_runtime r
      where r.cell_id = p_cell.cell_id and r.heard_at > p_now - relay.span_of('heartbeatTtlMs')) then 'cell_still_heard'
  end;
end
$$;
--! EndIncluded cells/retire_refusal.sql
--! Included cells/retire_cell.sql
-- Forgets a cell for good, once nothing is on it.
-- Caller: operator. Locks: the cell, its latch (exclusive), its runtime row.
-- Outcomes: ok, forbidden, cell_not_found, cell_in_reserve_mode, cell_admission_enabled (set it existing-only first),
-- cell_has_open_migration, cell_has_open_fence, cell_has_hosts, cell_still_heard (stop its process first).
create or replace function relay_v1.retire_cell(cell_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(retire_cell.cell_id);
  v_cell relay.cell;
  v_refusal text;
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('retire_cell', v_arguments, 'forbidden');
  end if;
  v_cell := relay.lock_cell(retire_cell.cell_id);
  perform from relay.cell_runtime r where r.cell_id = retire_cell.cell_id for update;
  v_now := relay.now();
  v_refusal := relay.retire_refusal(v_cell, v_now);
  if v_refusal is not null then
    return relay.audit('retire_cell', v_arguments, v_refusal);
  end if;
  delete from relay.fence f where f.cell_id = retire_cell.cell_id;
  delete from relay.cell_effective_mode e where e.cell_id = retire_cell.cell_id;
  delete from relay.cell_runtime r where r.cell_id = retire_cell.cell_id;
  delete from relay.cell c where c.cell_id = retire_cell.cell_id;
  perform relay.ring('cell_retired', retire_cell.cell_id, jsonb_build_object('url', v_cell.url, 'region', v_cell.region),
    v_now);
  return relay.audit('retire_cell', v_arguments, 'ok');
end
$$;
comment on function relay_v1.retire_cell(text) is 'Forgets a cell on which nothing is left. ok, or what is';
--! EndIncluded cells/retire_cell.sql
--! Included ledger/record_first_seat.sql
-- Records the seat of a host that has no row yet. Another session may be making the row: an insert waits for that one's
-- commit and cannot skip it, so it is waited for briefly and the host passed over.
-- Caller: record_seats. Locks: see record_seat; each waited for ≤ 100 ms. Outcome: false if the row was not had in time.
create or replace function relay.record_first_seat(
  p_user_id text, p_relay_host_id text, p_cell_id text, p_epoch bigint, p_now timestamptz)
returns boolean
language plpgsql
set lock_timeout = '100ms'
as $$
begin
  perform relay.record_seat(p_user_id, p_relay_host_id, p_cell_id, p_epoch, p_now);
  return true;
exception
  when lock_not_available then
    return false;
end
$$;
--! EndIncluded ledger/record_first_seat.sql
--! Included ledger/record_seats.sql
-- Writes seats that a director booked, or read from a feed, into the rows of their hosts: only where the epoch is strictly
-- higher than the row's. The rows that are behind are found first; the others, which are nearly all, are not locked.
-- Caller: director, the ledger; at most 500 rows. Locks: the rows that are behind, in (user_id, relay_host_id) order; one
-- that somebody else holds, or is making, is passed over.
-- Results: recorded (the row says so now, or did already), stale (the row has a higher epoch, or this one on another cell:
-- that seat is to be demoted), busy (locked: send it again).
create or replace function relay_v1.record_seats(rows jsonb)
returns table (user_id text, relay_host_id text, result text)
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_seat record;
  v_now timestamptz;
begin
  if jsonb_typeof(record_seats.rows) is distinct from 'array'
    or jsonb_array_length(record_seats.rows) > relay.limit_of('ledgerBatchRows') then
    perform relay.misuse(format('record_seats: rows is an array of at most %s', relay.limit_of('ledgerBatchRows')));
  elsif exists (
    select from jsonb_to_recordset(record_seats.rows) s (user_id text, relay_host_id text, cell_id text, epoch bigint)
    where num_nulls(s.user_id, s.relay_host_id, s.cell_id) > 0 or (s.epoch > 0) is not true) then
    perform relay.misuse('record_seats: a row is {user_id, relay_host_id, cell_id, epoch}');
  end if;
  for v_seat in
    select s.user_id, s.relay_host_id, s.cell_id, s.epoch, a.cell_id as row_cell_id, a.epoch as row_epoch
    from jsonb_to_recordset(record_seats.rows) s (user_id text, relay_host_id text, cell_id text, epoch bigint)
    left join relay.assignment a on a.user_id = s.user_id and a.relay_host_id = s.relay_host_id
    order by s.user_id, s.relay_host_id, s.epoch
  loop
    user_id := v_seat.user_id;
    relay_host_id := v_seat.relay_host_id;
    if v_seat.epoch > coalesce(v_seat.row_epoch, 0) then
      perform from relay.assignment a
      where a.user_id = v_seat.user_id and a.relay_host_id = v_seat.relay_host_id
      for no key update skip locked;
      v_now := coalesce(v_now, relay.now());
      if found then
        perform relay.record_seat(v_seat.user_id, v_seat.relay_host_id, v_seat.cell_id, v_seat.epoch, v_now);
      elsif v_seat.row_epoch is not null or not relay.record_first_seat(
        v_seat.user_id, v_seat.relay_host_id, v_seat.cell_id, v_seat.epoch, v_now) then
        result := 'busy';
        return next;
        continue;
      end if;
    end if;
    -- as it is now: of two directors that booked one epoch the first writer wins
    select case when a.epoch = v_seat.epoch and a.cell_id = v_seat.cell_id then 'recorded' else 'stale' end
    into result
    from relay.assignment a
    where a.user_id = v_seat.user_id and a.relay_host_id = v_seat.relay_host_id;
    return next;
  end loop;
end
$$;
comment on function relay_v1.record_seats(jsonb) is
  'Brings the rows of hosts to seats [{user_id, relay_host_id, cell_id, epoch}] with a higher epoch: recorded, stale or busy';
--! EndIncluded ledger/record_seats.sql
--! Included views/trip_slots_rows.sql
-- The rows of the view relay_v1.trip_slots. Caller: view trip_slots. Locks: none.
create or replace function relay.trip_slots_rows()
returns table (
  cell_id text, region text, admit_mode text, effective_mode text, holds_slot boolean, slots int, row_age interval,
  frees_in interval)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.region, c.admit_mode, e.mode, relay.holds_trip_slot(c.admit_mode, e, v_now),
    -- 2.0 is a whole number to the cells, too
    case when relay.is_integer_within(c.flags -> 'deadManTripSlots', 0, 64)
      then (c.flags -> 'deadManTripSlots')::numeric::int end,
    v_now - e.updated_at,
    case when relay.holds_trip_slot(c.admit_mode, e, v_now)
      then e.updated_at + relay.span_of('tripSlotTtlMs') - v_now end
  from relay.cell c
  left join relay.cell_effective_mode e on e.cell_id = c.cell_id
  where c.admit_mode = 'reserve' or e.cell_id is not null;
end
$$;
--! EndIncluded views/trip_slots_rows.sql
--! Included views/trip_slots.sql
-- Cells in reserve mode, or that have been, and who of them holds a trip slot. Reader: monitor, operator, director.
create view relay_v1.trip_slots as
select t.* from relay.trip_slots_rows() t order by t.cell_id;
comment on view relay_v1.trip_slots is 'Cells in reserve mode, how they really admit hosts, and which hold a trip slot';
comment on column relay_v1.trip_slots.admit_mode is 'What the operators recorded';
comment on column relay_v1.trip_slots.effective_mode is 'What the process last said that it does; db on a cell recorded as reserve: it has tripped';
comment on column relay_v1.trip_slots.holds_slot is 'Counts against the limit of cells that may run on the database at once';
comment on column relay_v1.trip_slots.slots is 'That limit as this cell has it; null: it trips without asking';
comment on column relay_v1.trip_slots.row_age is 'Since the process last said so';
comment on column relay_v1.trip_slots.frees_in is 'When the slot is free again if the process stays silent';
--! EndIncluded views/trip_slots.sql
-- modes: end

-- placement: begin
alter type relay.ask add attribute seen_cell_id text;
alter type relay.ask add attribute seen_epoch bigint;
alter type relay.ask add attribute dead_cell_id text;
alter type relay.ask add attribute dead_at timestamptz;
alter type relay.decision add attribute holds boolean;
alter type relay.decision add attribute records boolean;
alter type relay.decision add attribute if_full text;
alter type relay.decision add attribute grace_ms int;
alter type relay.decision add attribute verdict_wanted boolean;
comment on type relay.decision is 'What the table of assign says: keep and refuse need no write; grant, remint, place and move do';
create type relay.home as (
  cell_id text, epoch bigint, is_newer boolean, last_activity_at timestamptz, unattached_since timestamptz, preference text,
  holds boolean, lease_expires_at timestamptz,
  url text, region text, latch int, admission text, unit_limit int, capped boolean, reserve boolean,
  roll_isolated_at timestamptz, rolling boolean, draining boolean, drain_grace_ms int,
  heard_at timestamptz, started_at timestamptz, fresh boolean, live boolean, idle boolean, judged boolean);
comment on type relay.home is 'What the table of assign looks at: a host, its lease, its home and what that last said';
alter table relay.assignment add constraint assignment_preferred_region_length
  check (length(preferred_region) between 1 and 128) not valid;
alter table relay.assignment validate constraint assignment_preferred_region_length;
-- these take what the table looks at in one piece now
drop function relay.decide_assign(relay.ask, timestamptz);
drop function relay.is_dormant(text, text, timestamptz, timestamptz);
drop function relay.unavailable_cause(relay.cell, relay.cell_runtime, timestamptz);

--! Included placement/runs_on_database.sql
-- Whether a reserve cell has said, in the last 45 s and as the process that was heard last, that it admits by the database:
-- it has tripped, and is a target like any other (03, target; 91).
-- Caller: target_rejection, for a reserve cell only. Locks: none.
create or replace function relay.runs_on_database(p_cell_id text, p_incarnation uuid, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.cell_effective_mode e
    where e.cell_id = p_cell_id and e.incarnation = p_incarnation and e.mode = 'db'
      and e.updated_at > p_now - relay.span_of('heartbeatTtlMs'));
end
$$;
--! EndIncluded placement/runs_on_database.sql
--! Included placement/target_rejection.sql
-- Why a cell cannot be the target of a host, or null if it can, its load apart (03, target).
-- Inlined into the queries that use it. Caller: choose_target, target_room, explain_assign, regions. Locks: none.
-- Outcomes: admission, reserve, unheard, not_ready, draining.
create or replace function relay.target_rejection(p_cell relay.cell, p_runtime relay.cell_runtime, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_cell.admission <> 'general' then 'admission'
    when p_cell.admit_mode = 'reserve' and not relay.runs_on_database(p_cell.cell_id, p_runtime.incarnation, p_now) then 'reserve'
    when (p_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')) is not true then 'unheard'
    when not p_runtime.ready then 'not_ready'
    when p_cell.drain_incarnation = p_runtime.incarnation then 'draining'
  end
$$;
--! EndIncluded placement/target_rejection.sql
--! Included placement/read_home.sql
-- Everything about a host and its home that the table of assign looks at: of its row, or of the seat that the director
-- knows, if that is newer (03, `seen`: decided as if the row said so). All null: no row.
-- `stable`, so that all four look-ups see one snapshot; one statement that joins them costs ×1.6.
-- Caller: assign, apply_assign, attempt_assign, explain_assign, simulate_outage. Locks: none.
create or replace function relay.read_home(p_ask relay.ask, p_now timestamptz)
returns relay.home
language plpgsql stable
as $$
declare
  v_row relay.assignment;
  v_lease relay.lease;
  v_cell relay.cell;
  v_runtime relay.cell_runtime;
  v_fresh boolean;
  v_is_newer boolean;
begin
  select a.* into v_row
  from relay.assignment a
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id;
  v_is_newer := coalesce(p_ask.seen_epoch > coalesce(v_row.epoch, 0), false);
  if v_is_newer then
    v_row.cell_id := p_ask.seen_cell_id; v_row.epoch := p_ask.seen_epoch;
    v_row.last_activity_at := p_now; v_row.unattached_since := null;
  end if;
  select l.* into v_lease
  from relay.lease l
  where l.user_id = p_ask.user_id and l.relay_host_id = p_ask.relay_host_id and l.cell_id = v_row.cell_id;
  select c.* into v_cell from relay.cell c where c.cell_id = v_row.cell_id;
  select r.* into v_runtime from relay.cell_runtime r where r.cell_id = v_cell.cell_id;
  v_fresh := coalesce(v_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs'), false);
  return (v_row.cell_id, v_row.epoch, v_is_newer, v_row.last_activity_at, v_row.unattached_since,
    case when v_row.preferred_region_at > p_now - relay.span_of('regionPreferenceTtlMs') then v_row.preferred_region end,
    coalesce(v_lease.epoch = v_row.epoch and v_lease.state <> 'retiring' and v_lease.expires_at > p_now, false),
    v_lease.expires_at,
    v_cell.url, v_cell.region, v_cell.latch, v_cell.admission, v_cell.unit_limit, v_cell.connection_hard_cap is not null,
    v_cell.admit_mode = 'reserve', v_cell.roll_isolated_at,
    coalesce(v_cell.admission = 'migration-only'
      and v_cell.roll_isolated_at > p_now - relay.span_of('rollStampTtlMs'), false),
    coalesce(v_cell.drain_incarnation = v_runtime.incarnation, false), v_cell.drain_grace_ms,
    v_runtime.heard_at, v_runtime.started_at, v_fresh, v_fresh and v_runtime.ready,
    coalesce(v_runtime.total_connections = 0 and v_runtime.in_flight_connections = 0 and v_runtime.enforced_units = 0, false),
    null)::relay.home;
end
$$;
--! EndIncluded placement/read_home.sql
--! Included placement/unavailable_cause.sql
-- Why a home that is not live is not (03, rule 14). Caller: outcome_of, is_dead_reserve. Locks: none.
-- Outcomes: booting, draining, unheard, not_ready.
create or replace function relay.unavailable_cause(p_home relay.home)
returns text
language plpgsql immutable
as $$
begin
  return case
    when p_home.heard_at is null then 'booting'
    when p_home.admission = 'existing-only' then 'draining'
    when p_home.draining and not p_home.rolling then 'draining'
    when not p_home.fresh then 'unheard'
    else 'not_ready'
  end;
end
$$;
--! EndIncluded placement/unavailable_cause.sql
--! Included placement/is_migrating.sql
-- Whether a host has an open migration, pinned or not: the roll rules leave it alone. Caller: decide_assign (rules 4 and
-- 10). Locks: none.
create or replace function relay.is_migrating(p_user_id text, p_relay_host_id text)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.migration m
    where m.user_id = p_user_id and m.relay_host_id = p_relay_host_id and m.completed_at is null and m.aborted_at is null);
end
$$;
--! EndIncluded placement/is_migrating.sql
--! Included placement/is_pinned.sql
-- Whether an open migration ties a host to its home at the epoch of its row: then only a fence sets it free.
-- Caller: decide_assign (rule 11), is_dead_reserve. Locks: none.
create or replace function relay.is_pinned(p_ask relay.ask, p_home relay.home)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.migration m
    where m.user_id = p_ask.user_id and m.relay_host_id = p_ask.relay_host_id
      and m.completed_at is null and m.aborted_at is null
      and m.pinned_at is not null and m.target_cell = p_home.cell_id and m.epoch = p_home.epoch);
end
$$;
--! EndIncluded placement/is_pinned.sql
--! Included placement/is_judged.sql
-- Whether a silence may be judged (03, hearing), or what simulate_outage assumes about it.
-- Caller: decide_assign (rule 11), is_dormant, is_dead_reserve. Locks: none.
create or replace function relay.is_judged(p_home relay.home, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return coalesce(p_home.judged, relay.hearing(p_now));
end
$$;
--! EndIncluded placement/is_judged.sql
--! Included placement/is_dormant.sql
-- Whether a host has shown no activity for 24 h, while silences may be judged (03, rule 2). Activity is the stamp, which
-- the caller has looked at since it answers for nearly every host, or the end of its latest lease, expired ones too.
-- Caller: decide_assign. Locks: none.
create or replace function relay.is_dormant(p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return relay.is_judged(p_home, p_now) and not exists (
    select from relay.lease l
    where l.user_id = p_ask.user_id and l.relay_host_id = p_ask.relay_host_id
      and l.expires_at > p_now - relay.span_of('dormantTtlMs'));
end
$$;
--! EndIncluded placement/is_dormant.sql
--! Included placement/is_dead_reserve.sql
-- Whether a host may leave its dead reserve cell without a fence, but for what the director's polls say (03, dead, 1 to 5).
-- The mode stands in the row of the cell, which a flip changes under the latch that attempt_assign holds shared.
-- Caller: decide_assign (rule 13), outcome_of (a verdict is wanted). Locks: none.
create or replace function relay.is_dead_reserve(p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return p_ask.requested_by = 'host'
    and not relay.is_pinned(p_ask, p_home)
    and coalesce(p_home.reserve, false)
    and relay.unavailable_cause(p_home) = 'unheard' and relay.is_judged(p_home, p_now)
    and p_ask.epoch_floor is not null;
end
$$;
--! EndIncluded placement/is_dead_reserve.sql
--! Included placement/polls_say_dead.sql
-- Whether the director's polls say that this home is dead, judged at most 5 s ago (03, dead, 6). The instant is one that
-- this clock gave the director, so no two clocks are compared; one from the future is no evidence.
-- Caller: decide_assign (rule 13). Locks: none.
create or replace function relay.polls_say_dead(p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns boolean
language plpgsql immutable
as $$
begin
  return coalesce(p_ask.dead_cell_id = p_home.cell_id
    and p_ask.dead_at between p_now - relay.span_of('pollEvidenceTtlMs') and p_now, false);
end
$$;
--! EndIncluded placement/polls_say_dead.sql
--! Included placement/outcome_of.sql
-- What a row of the table of assign leads to (03, assign, outcome).
-- Actions: keep and refuse are answers; grant (a lease on the home), remint (a new epoch on the home), place and move are
-- for attempt_assign to write. `if_full` is what becomes of a move for which there is no target.
-- Caller: decide_assign. Locks: none.
create or replace function relay.outcome_of(
  p_rule text, p_free_units int, p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns relay.decision
language plpgsql stable
as $$
declare
  v_d relay.decision;
  v_is_host constant boolean := p_ask.requested_by = 'host';
begin
  v_d.rule := p_rule;
  v_d.cell_id := p_home.cell_id; v_d.cell_url := p_home.url; v_d.region := p_home.region; v_d.latch := p_home.latch;
  v_d.epoch := p_home.epoch; v_d.free_units := p_free_units; v_d.holds := p_home.holds; v_d.records := p_home.is_newer;
  v_d.target_region := coalesce(p_ask.preferred_region, p_home.preference, p_home.region);
  if p_rule in ('sticky', 'reserve-pin') then
    v_d.action := case when p_home.holds or not v_is_host or p_home.reserve then 'keep' else 'grant' end;
    v_d.outcome := 'granted';
    v_d.lease_expires_at := case when p_home.holds then p_home.lease_expires_at else p_now + relay.span_of('grantLeaseMs') end;
    v_d.stamp_due := p_rule = 'sticky' and v_is_host and p_home.holds
      and p_home.last_activity_at <= p_now - relay.span_of('activityStampIntervalMs');
    return v_d;
  elsif p_rule = 'no-headroom' then
    v_d.action := 'refuse'; v_d.outcome := 'no_headroom';
    return v_d;
  elsif p_rule = 'home-unavailable' or p_rule = 'behind' and not v_is_host then
    v_d.action := 'refuse'; v_d.outcome := 'unavailable';
    v_d.cause := case p_rule when 'behind' then 'behind' else relay.unavailable_cause(p_home) end;
    v_d.verdict_wanted := p_rule <> 'behind' and relay.is_dead_reserve(p_ask, p_home, p_now);
    return v_d;
  end if;
  v_d.outcome := 'would_place';
  v_d.action := case
    when p_rule = 'new' then 'place'
    when p_rule = 'behind' and p_free_units > 0 then 'remint'
    else 'move'
  end;
  v_d.forced := true; v_d.if_full := 'no_capacity';
  v_d.excluded := case when p_rule not in ('behind', 'dormant') then p_home.cell_id end;
  if p_rule in ('roll-isolated', 'draining-home', 'headroom', 'roll-replaced') then
    v_d.forced := false;
    v_d.grace_ms := case when p_home.draining then p_home.drain_grace_ms else relay.limit_of('retiringLeaseMs') end;
  end if;
  if p_rule in ('roll-isolated', 'draining-home', 'roll-replaced') then
    v_d.target_region := p_home.region;
  end if;
  if p_rule = 'roll-isolated' then
    v_d.if_full := 'keep';
    v_d.lease_expires_at := case when p_home.holds then p_home.lease_expires_at else p_now + relay.span_of('grantLeaseMs') end;
  elsif p_rule = 'roll-replaced' and p_home.capped then
    v_d.if_full := 'unavailable';
    v_d.cause := relay.unavailable_cause(p_home);
  end if;
  return v_d;
end
$$;
--! EndIncluded placement/outcome_of.sql
--! Included placement/decide_assign.sql
-- What is to be done about a host that is asked for: the table of 03-decisions.md, assign, a `when` for each row, from top
-- to bottom. The first row that matches and whose *who* includes the caller wins; a caller that a row excludes falls
-- through. Reads, and neither writes nor locks; what a row leads to is in outcome_of.
-- Caller: assign unlocked, attempt_assign under its locks, explain_assign, simulate_outage. Locks: none.
create or replace function relay.decide_assign(p_ask relay.ask, p_home relay.home, p_now timestamptz)
returns relay.decision
language plpgsql stable
as $$
declare
  v_rule text;
  v_free_units int;
  v_is_host constant boolean := p_ask.requested_by = 'host';
  v_is_caller constant boolean := p_ask.requested_by in ('host', 'resolve', 'invite');
begin
  -- a host that holds its lease has its place: its cell is not counted
  if p_home.live and (not p_home.holds or p_home.epoch < p_ask.epoch_floor) then
    v_free_units := p_home.unit_limit - relay.load(p_home.cell_id, p_now);
  end if;
  v_rule := case
    -- 0 a booking or a leaver is newer than the row
    when p_home.epoch < p_ask.epoch_floor and p_home.live then 'behind'
    -- 1
    when v_is_caller and p_home.cell_id is null then 'new'
    -- 2 the activity of a host on a fresh reserve cell lives in the memory of that cell
    when v_is_host and not p_home.holds and p_home.last_activity_at <= p_now - relay.span_of('dormantTtlMs')
      and not (p_home.reserve and p_home.fresh) and relay.is_dormant(p_ask, p_home, p_now) then 'dormant'
    -- 3
    when v_is_host and p_home.admission = 'existing-only'
      and p_home.unattached_since <= p_now - relay.span_of('strandedAfterMs')
      and p_home.last_activity_at > p_now - relay.span_of('strandedAskWindowMs') then 'stranded'
    -- 4
    when v_is_host and p_home.live and p_home.rolling
      and not relay.is_migrating(p_ask.user_id, p_ask.relay_host_id) then 'roll-isolated'
    -- 5
    when v_is_host and p_home.live and not p_home.reserve and p_home.draining then 'draining-home'
    -- 6
    when p_home.live and p_home.reserve then 'reserve-pin'
    -- 7
    when p_home.live and (p_home.holds or v_free_units > 0) then 'sticky'
    -- 8 no lease is held, or it would be row 7
    when v_is_host and p_home.live and p_home.admission = 'general' then 'headroom'
    -- 9 from here on the home is not live
    when p_home.live then 'no-headroom'
    -- 10 another process than the drained one, and nobody on it
    when v_is_caller and p_home.rolling and p_home.fresh and p_home.started_at > p_home.roll_isolated_at
      and (p_home.idle or not p_home.capped)
      and not relay.is_migrating(p_ask.user_id, p_ask.relay_host_id) then 'roll-replaced'
    -- 11
    when v_is_host and p_home.heard_at is not null and not p_home.capped
      and not relay.is_pinned(p_ask, p_home) and relay.is_judged(p_home, p_now) then 'dead-uncapped'
    -- 12
    when p_ask.requested_by <> 'operator' and relay.is_fenced(p_home.cell_id, p_now) then 'fenced'
    -- 13
    when relay.is_dead_reserve(p_ask, p_home, p_now) and relay.polls_say_dead(p_ask, p_home, p_now) then 'dead-reserve'
    -- 14
    else 'home-unavailable'
  end;
  return relay.outcome_of(v_rule, v_free_units, p_ask, p_home, p_now);
end
$$;
--! EndIncluded placement/decide_assign.sql
--! Included placement/without_target.sql
-- What a decision becomes when no cell can take the host: rule 4 keeps it where it is, with a lease if there is room;
-- rule 10 on a capped cell is rule 14; every other is no_capacity. A decision that needs no target stays what it is.
-- Caller: apply_assign, attempt_assign, explain_assign, simulate_outage. Locks: none.
create or replace function relay.without_target(p_decision relay.decision)
returns relay.decision
language plpgsql immutable
as $$
declare
  v_d relay.decision := p_decision;
begin
  if v_d.action not in ('place', 'move') then
    return v_d;
  elsif v_d.if_full = 'keep' then
    v_d.action := case when v_d.free_units > 0 then 'grant' else 'keep' end;
    v_d.outcome := 'granted';
  elsif v_d.if_full = 'unavailable' then
    v_d.action := 'refuse'; v_d.outcome := 'unavailable'; v_d.rule := 'home-unavailable';
  else
    v_d.action := 'refuse'; v_d.outcome := 'no_capacity';
  end if;
  return v_d;
end
$$;
--! EndIncluded placement/without_target.sql
--! Included placement/answer.sql
-- A decision that needs no write, as assign answers it. Caller: assign, apply_assign. Locks: none.
create or replace function relay.answer(p_decision relay.decision, p_now timestamptz)
returns relay_v1.assign_result
language plpgsql immutable
as $$
declare
  v_result relay_v1.assign_result;
begin
  v_result.outcome := p_decision.outcome;
  v_result.rule := p_decision.rule;
  v_result.cause := case when p_decision.outcome = 'unavailable' then p_decision.cause end;
  if p_decision.outcome = 'granted' then
    v_result.cell_id := p_decision.cell_id;
    v_result.cell_url := p_decision.cell_url;
    v_result.region := p_decision.region;
    v_result.epoch := p_decision.epoch;
    v_result.lease_expires_at := p_decision.lease_expires_at;
  end if;
  v_result.moved := false;
  v_result.verdict_wanted := coalesce(p_decision.verdict_wanted and p_decision.outcome = 'unavailable', false);
  v_result.decided_at := p_now;
  return v_result;
end
$$;
--! EndIncluded placement/answer.sql
--! Included placement/record_seat.sql
-- Brings the row of one host to a seat that a director knows, as the ledger does: only if its epoch is strictly higher.
-- A host that is seated is attached; what it held elsewhere ends, and so do its migrations of older epochs.
-- Caller: record_seen, record_seats, which hold the host's row if there is one. Locks: the host's row, its leases, its
-- migration. Outcome: whether anything was written.
create or replace function relay.record_seat(
  p_user_id text, p_relay_host_id text, p_cell_id text, p_epoch bigint, p_now timestamptz)
returns boolean
language plpgsql
as $$
declare
  v_from_cell text;
begin
  select a.cell_id into v_from_cell
  from relay.assignment a
  where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id;
  insert into relay.assignment as a (user_id, relay_host_id, cell_id, epoch, last_activity_at)
  values (p_user_id, p_relay_host_id, p_cell_id, p_epoch, p_now)
  on conflict on constraint assignment_pkey do update
  set cell_id = excluded.cell_id, epoch = excluded.epoch, last_activity_at = excluded.last_activity_at,
    unattached_since = null
  where a.epoch < excluded.epoch;
  if not found then
    return false;
  end if;
  delete from relay.lease l where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id;
  perform relay.abort_migration(p_user_id, p_relay_host_id, p_epoch, p_now);
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, detail, at)
  values ('recorded', v_from_cell, p_cell_id, p_user_id, p_relay_host_id, p_epoch, '{"forced": true}', p_now);
  return true;
end
$$;
--! EndIncluded placement/record_seat.sql
--! Included placement/record_seen.sql
-- Brings the row of a host to the seat that the director knows (03, `seen`), before what was decided on it is written.
-- Caller: assign. Locks: the host's row, ≤ 500 ms; see record_seat. Outcome: false if the row was not had in time.
create or replace function relay.record_seen(p_ask relay.ask)
returns boolean
language plpgsql
set lock_timeout = '500ms'
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform relay.misuse('assign needs isolation level read committed');
  end if;
  perform from relay.assignment a
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id
  for no key update;
  perform relay.record_seat(p_ask.user_id, p_ask.relay_host_id, p_ask.seen_cell_id, p_ask.seen_epoch, relay.now());
  return true;
exception
  when lock_not_available or deadlock_detected then
    return false;
end
$$;
--! EndIncluded placement/record_seen.sql
--! Included placement/read_hints.sql
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
--! EndIncluded placement/read_hints.sql
--! Included placement/write_move.sql
-- Writes a move: what the host holds elsewhere ends, at once (forced) or after a grace (retiring), and its migrations of
-- older epochs are overtaken; the row names the target at a new epoch; off a draining cell a pinned migration is opened.
-- Null: no epoch can be minted yet.
-- Caller: attempt_assign, which holds the host's row and the latches. Locks: the host's leases, its migration.
create or replace function relay.write_move(
  p_ask relay.ask, p_decision relay.decision, p_target relay.target, p_now timestamptz)
returns bigint
language plpgsql
as $$
declare
  v_epoch constant bigint := relay.mint_epoch(p_decision.epoch, p_ask.epoch_floor);
  v_retire_until timestamptz;
begin
  if v_epoch is null then
    return null;
  end if;
  if p_decision.forced then
    delete from relay.lease l where l.user_id = p_ask.user_id and l.relay_host_id = p_ask.relay_host_id;
  else
    v_retire_until := p_now + make_interval(secs => p_decision.grace_ms / 1000.0);
    perform relay.retire_leases(p_ask.user_id, p_ask.relay_host_id, v_retire_until);
  end if;
  perform relay.abort_migration(p_ask.user_id, p_ask.relay_host_id, v_epoch, p_now);
  update relay.assignment a
  set cell_id = p_target.cell_id, epoch = v_epoch, last_activity_at = p_now,
    unattached_since = coalesce(a.unattached_since, p_now),
    preferred_region = coalesce(p_ask.preferred_region, a.preferred_region),
    preferred_region_at = case when p_ask.preferred_region is null then a.preferred_region_at else p_now end
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id;
  insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, detail, at)
  values ('moved', p_decision.cell_id, p_target.cell_id, p_ask.user_id, p_ask.relay_host_id, v_epoch, p_decision.rule,
    jsonb_build_object('forced', p_decision.forced, 'retire_until', (extract(epoch from v_retire_until) * 1000)::bigint),
    p_now);
  if p_decision.rule = 'draining-home' then
    perform relay.open_migration(p_ask.user_id, p_ask.relay_host_id, v_epoch, p_decision.cell_id, p_target.cell_id, true, p_now);
  end if;
  return v_epoch;
end
$$;
--! EndIncluded placement/write_move.sql
--! Included placement/attempt_assign.sql
-- One attempt to write what was decided unlocked: locks, decides again, and applies only what was decided before.
-- Caller: apply_assign, in a subtransaction that a raise undoes, locks included.
-- Locks: the host's row, the latches of home and target (ascending), then the host's leases and migration.
-- Outcomes: granted, busy (rule timeline: no heartbeat since a failover). Raises RL101: the target has no room (any
-- more); RL102: its latch is taken, or was taken in the wrong mode; RL103: the decision no longer stands.
create or replace function relay.attempt_assign(
  p_ask relay.ask, p_decision relay.decision, p_target relay.target, p_wait boolean)
returns relay_v1.assign_result
language plpgsql
as $$
declare
  v_d relay.decision := p_decision;
  v_target relay.target := p_target;
  v_result relay_v1.assign_result;
  v_now timestamptz := relay.now();
  v_shared boolean;
  v_free int;
  v_mints boolean;
begin
  v_result.epoch := relay.lock_host(p_ask, p_decision, p_target, v_now);
  if v_result.epoch is not null then
    v_shared := relay.take_latches(p_decision, p_target, p_wait);
    v_now := relay.now();
    if p_decision.action <> 'place' then
      v_d := relay.decide_assign(p_ask, relay.read_home(p_ask, v_now), v_now);
      if p_target.cell_id is null then
        v_d := relay.without_target(v_d);
        v_target := (v_d.cell_id, v_d.latch, v_d.cell_url, v_d.region, v_d.free_units);
      end if;
      if (v_d.action, v_d.rule) is distinct from (p_decision.action, p_decision.rule) then
        raise exception using errcode = 'RL103', message = 'the decision no longer stands';
      end if;
    end if;
    v_free := case when p_target.cell_id is null then v_d.free_units else relay.target_room(p_target.cell_id, v_now) end;
    if v_free > 0 is not true then
      raise exception using errcode = 'RL101', message = 'the target has no room';
    elsif v_shared and v_free <= relay.limit_of('skipSharedLatchBelowUnits') then
      raise exception using errcode = 'RL102', message = 'nearly full, and latched shared';
    end if;
    -- a dormant host may find its home the best cell, and is kept there
    v_mints := v_d.action = 'remint' or v_d.action = 'move' and (v_target.cell_id <> v_d.cell_id or v_d.rule = 'behind');
    if v_mints then
      v_result.epoch := relay.write_move(p_ask, v_d, v_target, v_now);
    end if;
  end if;
  if v_result.epoch is null then
    return ('busy', 'timeline', null, null, null, null, null, null, false, null, false, v_now)::relay_v1.assign_result;
  end if;
  v_result.outcome := 'granted'; v_result.rule := v_d.rule;
  v_result.cell_id := v_target.cell_id; v_result.cell_url := v_target.url; v_result.region := v_target.region;
  v_result.moved := v_d.action = 'move' and v_target.cell_id <> v_d.cell_id;
  v_result.from_cell_id := case when v_result.moved then v_d.cell_id end;
  v_result.verdict_wanted := false;
  v_result.decided_at := v_now;
  v_result.lease_expires_at := relay.grant_lease(p_ask, v_result.cell_id, v_result.epoch, v_now);
  if v_mints is not true then
    perform relay.note_grant(p_ask, v_result, v_d.action = 'place');
  end if;
  return v_result;
end
$$;
--! EndIncluded placement/attempt_assign.sql
--! Included placement/apply_assign.sql
-- Writes a grant, a placement or a move: picks a target, attempts, and when the world has changed meanwhile decides
-- again or goes on to another target. Each attempt is a subtransaction, so that a failed one leaves no lock behind.
-- Caller: assign. Locks: as attempt_assign; each waited for ≤ 500 ms.
-- Outcomes: granted; busy (row-busy: the host's row or a latch was not had in time; latch-busy: a cell with room was
-- skipped for its latch, or the host changed at every look); no_capacity; or what was decided on the second look.
create or replace function relay.apply_assign(p_ask relay.ask, p_decision relay.decision, p_place boolean)
returns relay_v1.assign_result
language plpgsql
set lock_timeout = '500ms'
as $$
declare
  v_d relay.decision := p_decision;
  v_target relay.target;
  v_excluded text[] := array[]::text[];
  v_skipped boolean := false;
  v_changed boolean := false;
  v_now timestamptz;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform relay.misuse('assign needs isolation level read committed');
  end if;
  for v_try in 1 .. 4 loop
    if v_d.action in ('keep', 'refuse') or not p_place and v_d.action <> 'grant' then
      return relay.answer(v_d, relay.now());
    end if;
    v_target := null;
    if v_d.action in ('place', 'move') then
      v_target := relay.choose_target(v_d.target_region, array_append(v_excluded, coalesce(v_d.excluded, '')), relay.now());
      if v_target.cell_id is null then
        exit when v_skipped;
        v_d := relay.without_target(v_d);
        continue when v_d.action <> 'grant';
      end if;
    end if;
    begin
      return relay.attempt_assign(p_ask, v_d, v_target, v_try = 1);
    exception
      when lock_not_available or deadlock_detected then
        v_d.outcome := 'busy'; v_d.rule := 'row-busy';
        return relay.answer(v_d, relay.now());
      when sqlstate 'RL101' or sqlstate 'RL102' then
        v_skipped := v_skipped or sqlstate = 'RL102';
        v_excluded := array_append(v_excluded, coalesce(v_target.cell_id, ''));
      when sqlstate 'RL103' then
        v_changed := true;
    end;
    v_now := relay.now();
    v_d := relay.decide_assign(p_ask, relay.read_home(p_ask, v_now), v_now);
  end loop;
  if not v_skipped and not v_changed and v_d.action in ('place', 'move') then
    return relay.answer(relay.without_target(v_d), relay.now());
  end if;
  v_d.outcome := 'busy'; v_d.rule := 'latch-busy';
  return relay.answer(v_d, relay.now());
end
$$;
--! EndIncluded placement/apply_assign.sql
--! Included placement/assign.sql
-- Which cell a host is to dial, at which epoch. Decides unlocked, and returns at once if nothing is to be written: a row
-- lock on the sticky path costs ×3. Only a grant, a placement or a move locks, decides again and writes.
-- `place => false` writes no placement and no move, and answers would_place instead. `epoch_floor` is the highest epoch
-- that the director knows of the host, `seen` {cell_id, epoch} the newest seat on its map: the row is brought to it first.
-- `poll_evidence` is the second call's, after an answer with verdict_wanted: {cell_id, dead, evaluated_at = decided_at, …}.
-- Caller: director, for a host, a phone (resolve, invite), a sweep or an operator. Locks: see record_seen, attempt_assign.
-- Outcomes: granted, would_place, busy, unavailable (with cause), no_capacity, no_headroom; `rule` names the row of the
-- decision table.
create or replace function relay_v1.assign(
  user_id text, relay_host_id text, preferred_region text default null, requested_by text default 'host',
  epoch_floor bigint default null, poll_evidence jsonb default null, place boolean default true,
  seen jsonb default null)
returns relay_v1.assign_result
language plpgsql
security definer
set search_path = relay, pg_temp
-- every statement is a look-up by key: a plan made anew for each costs ×3
set plan_cache_mode = force_generic_plan
as $$
declare
  v_ask relay.ask;
  v_d relay.decision;
  v_now timestamptz;
begin
  if assign.user_id is null or assign.relay_host_id is null or assign.place is null
    or assign.requested_by not in ('host', 'resolve', 'invite', 'sweep', 'operator') is not false
    or length(assign.preferred_region) not between 1 and 128 then
    perform relay.misuse('assign: user_id, relay_host_id or place is missing, or requested_by or the region is none');
  end if;
  v_ask := (assign.user_id, assign.relay_host_id, assign.preferred_region, assign.requested_by, assign.epoch_floor,
    null, null, null, null);
  if assign.seen is not null or assign.poll_evidence is not null then
    v_ask := relay.read_hints(v_ask, assign.seen, assign.poll_evidence);
  end if;
  v_now := relay.now();
  v_d := relay.decide_assign(v_ask, relay.read_home(v_ask, v_now), v_now);
  if v_d.records and (assign.place or v_d.action in ('keep', 'refuse', 'grant')) then
    if not relay.record_seen(v_ask) then
      v_d.outcome := 'busy'; v_d.rule := 'row-busy';
      return relay.answer(v_d, relay.now());
    end if;
    v_now := relay.now();
    v_d := relay.decide_assign(v_ask, relay.read_home(v_ask, v_now), v_now);
  end if;
  if v_d.action in ('keep', 'refuse') then
    if v_d.stamp_due then
      perform relay.stamp_activity(v_ask, v_d, v_now);
    end if;
    return relay.answer(v_d, v_now);
  end if;
  return relay.apply_assign(v_ask, v_d, assign.place);
end
$$;
comment on function relay_v1.assign(text, text, text, text, bigint, jsonb, boolean, jsonb) is
  'Which cell a host is to dial, at which epoch; outcome, rule and cause from closed sets';
--! EndIncluded placement/assign.sql
--! Included placement/explain_assign.sql
-- What assign would answer a host now if a director asked that knows nothing of it, what it would look at, and every cell
-- with the reason why it would not be the target. Writes and locks nothing. Caller: operator, monitor, director.
-- Locks: none.
create or replace function relay_v1.explain_assign(user_id text, relay_host_id text, preferred_region text default null)
returns jsonb
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_ask relay.ask;
  v_d relay.decision;
  v_candidates jsonb;
begin
  v_ask.user_id := explain_assign.user_id; v_ask.relay_host_id := explain_assign.relay_host_id;
  v_ask.preferred_region := explain_assign.preferred_region;
  v_ask.requested_by := 'host'; v_ask.epoch_floor := 0;
  v_d := relay.decide_assign(v_ask, relay.read_home(v_ask, v_now), v_now);
  v_candidates := relay.explain_candidates(v_d, v_now);
  if not v_candidates @> '[{"rejected": null}]' then
    v_d := relay.without_target(v_d);
  end if;
  return jsonb_build_object('outcome', v_d.outcome, 'rule', v_d.rule,
    'cause', case when v_d.outcome = 'unavailable' then v_d.cause end,
    'inputs', jsonb_build_object(
      'row', (select to_jsonb(a) from relay.assignment a
        where a.user_id = explain_assign.user_id and a.relay_host_id = explain_assign.relay_host_id),
      'lease', (select to_jsonb(l) from relay.lease l
        where l.user_id = explain_assign.user_id and l.relay_host_id = explain_assign.relay_host_id
          and l.cell_id = v_d.cell_id),
      'cell', (select to_jsonb(c) from relay.cell c where c.cell_id = v_d.cell_id),
      'runtime', (select to_jsonb(r) from relay.cell_runtime r where r.cell_id = v_d.cell_id),
      'migration', (select to_jsonb(m) from relay.migration m
        where m.user_id = explain_assign.user_id and m.relay_host_id = explain_assign.relay_host_id
          and m.completed_at is null and m.aborted_at is null),
      'fence', (select to_jsonb(f) from relay.fence f where f.cell_id = v_d.cell_id)),
    'candidates', v_candidates);
end
$$;
comment on function relay_v1.explain_assign(text, text, text) is
  'What assign would answer now and why: outcome, rule, inputs, every candidate; writes and locks nothing';
--! EndIncluded placement/explain_assign.sql
--! Included placement/cells_in_outage.sql
-- The cells that an outage is simulated of: those named, or those of a region. SQLSTATE RL001 if there is none, or one that
-- is not registered. Caller: simulate_outage. Locks: none.
create or replace function relay.cells_in_outage(p_cells text[], p_region text)
returns text[]
language plpgsql stable
as $$
declare
  v_dead constant text[] := array(
    select c.cell_id from relay.cell c where c.cell_id = any (p_cells) or c.region = p_region);
begin
  if p_cells <> '{}' and not p_cells <@ v_dead then
    perform relay.misuse('simulate_outage: no such cell: ' || array_to_string(
      array(select x from unnest(p_cells) x where x <> all (v_dead)), ', '));
  elsif v_dead = '{}' then
    perform relay.misuse('simulate_outage: cells, or the region of a cell, are needed');
  end if;
  return v_dead;
end
$$;
--! EndIncluded placement/cells_in_outage.sql
--! Included placement/cells_judged_dead.sql
-- Those of the silent cells that a director's polls would judge dead, if its feed had every cell that is heard now (03, the
-- director's verdict): withheld with too small a sample, too much of the fleet or too much of a region failing.
-- Caller: simulate_outage. Locks: none.
create or replace function relay.cells_judged_dead(p_dead text[], p_now timestamptz)
returns text[]
language plpgsql stable
as $$
begin
  return array(
    with polled as (
      select c.cell_id, c.region, c.cell_id = any (p_dead) as failing
      from relay.cell c
      join relay.cell_runtime r on r.cell_id = c.cell_id
      where r.heard_at > p_now - relay.span_of('heartbeatTtlMs')
    ), counted as (
      select p.*, count(*) over () as cells, count(*) filter (where p.failing) over () as cells_failing,
        count(*) over here as in_region, count(*) filter (where p.failing) over here as failing_in_region
      from polled p
      window here as (partition by p.region)
    )
    select k.cell_id
    from counted k
    where k.failing and k.cells >= relay.limit_of('verdictMinFeedCells') and k.cells_failing * 3 <= k.cells
      and k.failing_in_region * 2 < k.in_region);
end
$$;
--! EndIncluded placement/cells_judged_dead.sql
--! Included placement/emptiest.sql
-- Which of the cells with room has the lowest load ratio, in the region if it has any with room, else in all; null if none.
-- Caller: simulate_outage. Locks: none.
create or replace function relay.emptiest(p_region text, p_regions text[], p_loads int[], p_limits int[])
returns int
language plpgsql immutable
as $$
begin
  return (
    select x.at
    from unnest(p_regions, p_loads, p_limits) with ordinality x (region, load, unit_limit, at)
    where x.load < x.unit_limit
    order by coalesce(x.region = p_region, false) desc, x.load::float8 / x.unit_limit, x.at
    limit 1);
end
$$;
--! EndIncluded placement/emptiest.sql
--! Included placement/simulate_outage.sql
-- What assign would answer each host of cells that fall silent, all other cells going on: who would move where, and who
-- would be refused. A row a host that was active in the last 24 h, at most max_hosts (a notice says if there are more).
-- The decision is assign's own. What it cannot read is assumed: silences are judged as long as another cell is heard; the
-- directors' polls agree, and their guards (sample, fleet, region) withhold as they would with every heard cell on their
-- feed; of all targets the emptiest is taken, where assign takes the emptier of two at random. Each move adds a unit to
-- the load of its target, as its lease would.
-- Caller: operator, monitor. Locks: none; writes nothing. SQLSTATE RL001 without a known cell.
create or replace function relay_v1.simulate_outage(
  cells text[] default null, region text default null, max_hosts int default 10000)
returns table (
  user_id text, relay_host_id text, from_cell text, outcome text, rule text, cause text, to_cell text, to_region text,
  to_load int, to_limit int)
language plpgsql stable
security definer
set search_path = relay, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now constant timestamptz := relay.now();
  v_dead constant text[] := relay.cells_in_outage(simulate_outage.cells, simulate_outage.region);
  v_polled constant text[] := relay.cells_judged_dead(v_dead, v_now);
  v_judged constant boolean := exists (
    select from relay.cell_runtime r
    where r.cell_id <> all (v_dead) and r.heard_at > v_now - relay.span_of('hearingWindowMs'));
  v_host record;
  v_ask relay.ask;
  v_home relay.home;
  v_d relay.decision;
  v_ids text[];
  v_regions text[];
  v_loads int[];
  v_limits int[];
  v_at int;
begin
  select array_agg(c.cell_id order by c.cell_id), array_agg(c.region order by c.cell_id),
    array_agg(relay.load(c.cell_id, v_now) order by c.cell_id), array_agg(c.unit_limit order by c.cell_id)
  into v_ids, v_regions, v_loads, v_limits
  from relay.cell c
  join relay.cell_runtime r on r.cell_id = c.cell_id
  where relay.target_rejection(c, r, v_now) is null and c.cell_id <> all (v_dead);
  for v_host in
    select a.user_id, a.relay_host_id, count(*) over () as active
    from relay.assignment a
    where a.cell_id = any (v_dead) and a.last_activity_at > v_now - relay.span_of('dormantTtlMs')
    order by a.user_id, a.relay_host_id
    limit simulate_outage.max_hosts
  loop
    v_ask := (v_host.user_id, v_host.relay_host_id, null, 'host', 0, null, null, null, null);
    v_home := relay.read_home(v_ask, v_now);
    v_home.live := false; v_home.fresh := false; v_home.judged := v_judged;
    if v_home.cell_id = any (v_polled) then
      v_ask.dead_cell_id := v_home.cell_id; v_ask.dead_at := v_now;
    end if;
    v_d := relay.decide_assign(v_ask, v_home, v_now);
    v_at := null;
    if v_d.action in ('place', 'move') then
      v_at := relay.emptiest(v_d.target_region, v_regions, v_loads, v_limits);
    end if;
    if v_at is null then
      v_d := relay.without_target(v_d);
    else
      v_loads[v_at] := v_loads[v_at] + 1;
      v_d.outcome := 'granted';
    end if;
    return query select v_host.user_id, v_host.relay_host_id, v_home.cell_id, v_d.outcome, v_d.rule,
      case when v_d.outcome = 'unavailable' then v_d.cause end, v_ids[v_at], v_regions[v_at], v_loads[v_at], v_limits[v_at];
  end loop;
  if v_host.active > simulate_outage.max_hosts then
    raise notice 'the first % of % hosts that were active in the last 24 h', simulate_outage.max_hosts, v_host.active;
  end if;
end
$$;
comment on function relay_v1.simulate_outage(text[], text, int) is
  'What assign would answer each host of cells that fall silent: who would move where, who would be refused; writes nothing';
--! EndIncluded placement/simulate_outage.sql
--! Included changes/changes_page.sql
-- One page of the change log, and the cursor after it, from one statement. Ids that were skipped are gaps: their
-- transactions may still be open, so they are asked for again until the reader drops them after 60 s. A reader that is
-- interested in one cell advances past the rows of the others all the same.
-- Caller: changes_since. Locks: none.
create or replace function relay.changes_page(
  p_timeline bigint, p_max_id bigint, p_gaps bigint[], p_cell_id text, p_max_rows int)
returns jsonb
language plpgsql stable
as $$
begin
  return (
    with edge as (
      select x.head, least(x.head, p_max_id + p_max_rows) as upto
      from (select greatest(max(c.id), p_max_id) as head from relay.change c) x
    ), present as materialized (
      select c.id, lag(c.id, 1, p_max_id) over (order by c.id) as before
      from edge e
      join relay.change c on c.id > p_max_id and c.id <= e.upto
    ), missing as (
      select g.id from present p cross join lateral generate_series(p.before + 1, p.id - 1) g (id)
      where p.id > p.before + 1
      union all
      select g.id
      from edge e cross join lateral generate_series((select coalesce(max(p.id), p_max_id) + 1 from present p), e.upto) g (id)
      union all
      select g.id from unnest(p_gaps) g (id) where not exists (select from relay.change c where c.id = g.id)
    ), wanted as (
      select c.*
      from edge e
      join relay.change c on c.id > p_max_id and c.id <= e.upto
      where p_cell_id is null or c.from_cell = p_cell_id or c.to_cell = p_cell_id
      union all
      select c.* from relay.change c
      where c.id = any (p_gaps) and (p_cell_id is null or c.from_cell = p_cell_id or c.to_cell = p_cell_id)
    )
    select jsonb_build_object(
      'cursor', jsonb_build_object('timeline', p_timeline, 'max_id', e.upto,
        'gaps', (select coalesce(jsonb_agg(m.id order by m.id), '[]') from missing m)),
      'resync', null,
      'more', e.upto < e.head,
      'changes', (
        select coalesce(jsonb_agg(jsonb_build_object('id', w.id, 'kind', w.kind, 'from_cell', w.from_cell,
          'to_cell', w.to_cell, 'user_id', w.user_id, 'relay_host_id', w.relay_host_id, 'epoch', w.epoch,
          'rule', w.rule, 'detail', w.detail, 'at', floor(extract(epoch from w.at) * 1000)::bigint) order by w.id), '[]')
        from wanted w))
    from edge e);
end
$$;
--! EndIncluded changes/changes_page.sql
--! Included changes/changes_since.sql
-- The changes after a cursor {timeline, max_id, gaps}, a page of them, and the next cursor. A null cursor starts at the
-- head: whoever takes it first and reads the state afterwards misses nothing. `cell_id` filters to what concerns a cell.
-- Caller: director (every 250 ms), cell (every second), both on a doorbell. Locks: none.
-- `resync` says why the reader must read its state anew: start; timeline (another server, ids may repeat); pruned (the
-- cursor is below what is kept); ahead (beyond the head: commits were lost). Then the cursor is a fresh one.
create or replace function relay_v1.changes_since(
  cursor jsonb default null, cell_id text default null, max_rows int default 1000)
returns jsonb
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  c_resync_ids constant int := 10000;
  v_timeline constant bigint := relay.timeline();
  v_max_rows constant int := least(greatest(changes_since.max_rows, 1), 10000);
  v_max_id constant bigint := (changes_since.cursor ->> 'max_id')::bigint;
  v_pruned bigint;
  v_head bigint;
  v_resync text;
  v_gaps bigint[];
begin
  select s.changes_pruned_to, greatest(s.changes_pruned_to, (select max(c.id) from relay.change c))
  into v_pruned, v_head
  from relay.setting s;
  v_resync := case
    when v_max_id is null then 'start'
    when (changes_since.cursor ->> 'timeline')::bigint is distinct from v_timeline then 'timeline'
    when v_max_id < v_pruned then 'pruned'
    when v_max_id > v_head then 'ahead'
  end;
  if v_resync is null then
    v_gaps := array(select g::bigint from jsonb_array_elements_text(changes_since.cursor -> 'gaps') g);
    return relay.changes_page(v_timeline, v_max_id, v_gaps, changes_since.cell_id, v_max_rows);
  end if;
  -- From the head, with the latest skipped ids as gaps: they may belong to transactions that are open now, and would
  -- be lost. As many as are given while the longest one lasts, whatever a page holds. No cell is named '': no row is read out.
  return relay.changes_page(v_timeline, greatest(v_pruned, v_head - c_resync_ids), '{}', '', c_resync_ids)
    || jsonb_build_object('resync', v_resync, 'more', false);
end
$$;
comment on function relay_v1.changes_since(jsonb, text, int) is
  'A page of changes after a cursor, the next cursor, and whether the reader must read its state anew';
--! EndIncluded changes/changes_since.sql
-- placement: end

-- views: begin
-- a row of it has more columns now
drop view relay_v1.fleet;
drop function relay.fleet_rows();
--! Included views/fleet_rows.sql
-- The rows of the view relay_v1.fleet. A function, so that who reads the view needs no right on the clock.
-- Caller: view fleet. Locks: none.
create or replace function relay.fleet_rows()
returns table (
  cell_id text, url text, region text, admission text, admit_mode text, live boolean, ready boolean,
  heard_age interval, enforced_units int, load int, unit_limit int, capped boolean, draining boolean, incarnation uuid,
  started_at timestamptz, state text, effective_mode text, free_units int, admission_generation bigint, roll_age interval,
  drain_progress numeric)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_live_since timestamptz := v_now - relay.span_of('heartbeatTtlMs');
begin
  return query
  select c.cell_id, c.url, c.region, c.admission, c.admit_mode, coalesce(r.ready and r.heard_at > v_live_since, false),
    r.ready, v_now - r.heard_at, r.enforced_units, l.load, c.unit_limit, c.connection_hard_cap is not null,
    coalesce(c.drain_incarnation = r.incarnation, false), r.incarnation, r.started_at,
    case when r.heard_at is null then 'never heard' when r.heard_at <= v_live_since then 'unheard'
      when not r.ready then 'not ready' else 'live' end,
    e.mode, case when l.load is not null then greatest(c.unit_limit - l.load, 0) end, c.admission_generation,
    v_now - c.roll_isolated_at, d.progress
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  left join relay.cell_effective_mode e on e.cell_id = c.cell_id
  left join relay.drains_rows() d on d.cell_id = c.cell_id and d.current
  left join lateral relay.cell_load(c.cell_id, v_now) l on true;
end
$$;
--! EndIncluded views/fleet_rows.sql
--! Included views/fleet.sql
-- Every cell as an operator wants to see it. Reader: monitor, operator, director.
create or replace view relay_v1.fleet as
select f.* from relay.fleet_rows() f order by f.cell_id;
comment on view relay_v1.fleet is 'Every cell: where it is, whether it is live, what it carries';
comment on column relay_v1.fleet.live is 'Ready, and heard less than 45 s ago';
comment on column relay_v1.fleet.load is 'What the last heartbeat said, and the leases that it cannot show yet';
comment on column relay_v1.fleet.unit_limit is 'Load below which the cell is given hosts';
comment on column relay_v1.fleet.state is 'live, not ready, unheard (for 45 s), never heard';
comment on column relay_v1.fleet.effective_mode is 'How the process says that it admits hosts; db on a reserve cell: it has tripped';
comment on column relay_v1.fleet.free_units is 'What the cell can still be given; 0 when it is full';
comment on column relay_v1.fleet.admission_generation is 'Name it in set_admission, and the later of two operators is refused';
comment on column relay_v1.fleet.roll_age is 'Since the cell was set apart for a roll; counts for 2 h';
comment on column relay_v1.fleet.drain_progress is '0 to 1 while the running process is told to drain: the share of its hosts that no longer has a seat';
--! EndIncluded views/fleet.sql
--! Included views/recent_changes_rows.sql
-- The rows of the view relay_v1.recent_changes: the end of the change log. Hosts appear as logs name them (a digest), so
-- that the monitor learns no host's id. Caller: view recent_changes. Locks: none.
create or replace function relay.recent_changes_rows()
returns table (
  id bigint, age interval, kind text, host text, from_cell text, to_cell text, epoch bigint, rule text, detail jsonb)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.id, v_now - c.at, c.kind,
    left(encode(sha256(convert_to(c.user_id, 'UTF8') || '\x00'::bytea || convert_to(c.relay_host_id, 'UTF8')), 'hex'), 12),
    c.from_cell, c.to_cell, c.epoch, c.rule, c.detail
  from relay.change c
  order by c.id desc
  limit 1000;
end
$$;
--! EndIncluded views/recent_changes_rows.sql
--! Included views/recent_changes.sql
-- The last 1 000 changes of state that are still in the log, newest first. Reader: monitor, operator, director.
create view relay_v1.recent_changes as
select r.* from relay.recent_changes_rows() r order by r.id desc;
comment on view relay_v1.recent_changes is 'The last 1 000 changes of state, newest first; the log keeps 15 min';
comment on column relay_v1.recent_changes.host is 'Digest of the host, as logs name it: the first 12 hex characters of SHA-256 of account, NUL, host id';
comment on column relay_v1.recent_changes.rule is 'Rule of the decision table that placed or moved the host';
comment on column relay_v1.recent_changes.detail is 'What else there is to say; times in it are epoch milliseconds';
--! EndIncluded views/recent_changes.sql
-- views: end

--! Included roles/schema_version.sql
-- The version of this interface: a process refuses to start on a database that is older or newer than it knows.
-- Caller: every process at start. Locks: none. Rises with each migration that a process must wait for.
create or replace function relay_v1.schema_version()
returns int
language sql immutable parallel safe
security definer
set search_path = relay, pg_temp
as $$ select 2 $$;
comment on function relay_v1.schema_version() is 'Version of the schema: a process starts only on the one it knows';
--! EndIncluded roles/schema_version.sql
--! Included roles/grant_rights.sql
-- Who may call what (02, the SQL interface).
revoke execute on all functions in schema relay, relay_v1 from public;
grant usage on schema relay_v1 to relay_director, relay_cell, relay_operator, relay_monitor;

grant execute on function relay_v1.schema_version, relay_v1.register_cell, relay_v1.explain_assign
  to relay_director, relay_cell, relay_operator, relay_monitor;
grant execute on function relay_v1.simulate_outage to relay_operator, relay_monitor;
grant execute on function relay_v1.assign, relay_v1.resolve, relay_v1.regions, relay_v1.cells, relay_v1.changes_since,
  relay_v1.sweep_leases, relay_v1.sweep_credentials, relay_v1.sweep_changes
  to relay_director;
grant execute on function relay_v1.sweep_dead_cells, relay_v1.sweep_migrations
  to relay_director;
grant execute on function relay_v1.start_drain, relay_v1.cancel_drain, relay_v1.evacuate_cell, relay_v1.supersede_target,
  relay_v1.migration_status, relay_v1.fence_begin, relay_v1.fence_start, relay_v1.fence_commit, relay_v1.fence_abort,
  relay_v1.fence_release, relay_v1.fence_status
  to relay_director, relay_cell, relay_operator, relay_monitor;
grant execute on function relay_v1.set_admission, relay_v1.isolate_for_roll, relay_v1.restore_after_roll,
  relay_v1.retire_cell, relay_v1.set_admit_mode, relay_v1.set_cell_flags
  to relay_director, relay_cell, relay_operator, relay_monitor;
grant execute on function relay_v1.record_seats to relay_director;
grant execute on function relay_v1.record_effective_mode, relay_v1.claim_trip_slot to relay_cell;
grant execute on function relay.trip_slots_rows to relay_director, relay_operator, relay_monitor;
grant select on relay_v1.trip_slots to relay_director, relay_operator, relay_monitor;
grant execute on function relay_v1.heartbeat, relay_v1.verify_seat, relay_v1.activate_control, relay_v1.renew_leases,
  relay_v1.release_lease, relay_v1.cell_orders, relay_v1.changes_since, relay_v1.create_invite,
  relay_v1.open_connection, relay_v1.release_invite, relay_v1.install_credential, relay_v1.install_status,
  relay_v1.confirm_resume, relay_v1.revoke_device
  to relay_cell;
grant execute on function relay.fleet_rows, relay.hosts_by_cell_rows, relay.recent_changes_rows
  to relay_director, relay_operator, relay_monitor;
grant select on relay_v1.fleet, relay_v1.hosts_by_cell, relay_v1.recent_changes
  to relay_director, relay_operator, relay_monitor;
grant execute on function relay.drains_rows, relay.open_migrations_rows, relay.fences_rows
  to relay_director, relay_operator, relay_monitor;
grant select on relay_v1.drains, relay_v1.open_migrations, relay_v1.fences
  to relay_director, relay_operator, relay_monitor;
--! EndIncluded roles/grant_rights.sql
