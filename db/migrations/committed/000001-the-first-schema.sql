--! Previous: -
--! Hash: sha1:2f07d11c900264c404006b27b9fed0c9fe53f57e
--! Message: The first schema

-- The first schema. `relay` holds tables and internal functions and belongs to the owner alone; `relay_v1` is what
-- processes and operators call.
set local lock_timeout = '5s';

--! Included roles/create_roles.sql
-- The roles that members of the relay log in through. They belong to the cluster, so that another database of it may
-- have made them already. Timeouts bind a role that logs in itself; for members the processes set their own.
do $$
declare
  v_role text;
begin
  foreach v_role in array array['relay_director', 'relay_cell', 'relay_operator', 'relay_monitor'] loop
    if not exists (select from pg_roles r where r.rolname = v_role) then
      begin
        execute format('create role %I nologin', v_role);
        execute format('alter role %I set statement_timeout = %L', v_role, '5s');
        execute format('alter role %I set idle_in_transaction_session_timeout = %L', v_role, '5s');
      exception when duplicate_object or unique_violation then
        null; -- another database of the cluster was migrated at the same moment
      end;
    end if;
  end loop;
end
$$;
--! EndIncluded roles/create_roles.sql

create schema relay;
comment on schema relay is 'Tables and internal functions of Orca Relay. Nobody but the owner touches it';
create schema relay_v1;
comment on schema relay_v1 is 'Functions and views that processes and operators of Orca Relay call, version 1';
revoke all on schema relay, relay_v1 from public;

--! Included rules/now.sql
-- The only clock. Tests replace this one function, which moves every session at once.
-- Caller: every function, once, after its last lock wait. Locks: none.
create or replace function relay.now()
returns timestamptz
language sql volatile
as $$ select clock_timestamp() $$;
--! EndIncluded rules/now.sql
--! Included rules/timeline.sql
-- The server's timeline: it rises when a standby is promoted, and commits may have been lost then. Read from the name of
-- the WAL file being written, since the control file still holds the old one until the first checkpoint.
-- Caller: mint_epoch, heartbeat, changes_since. Locks: none.
create or replace function relay.timeline()
returns bigint
language sql volatile
as $$ select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint $$;
--! EndIncluded rules/timeline.sql
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
    when 'changeRetentionMs' then 900000
    when 'controlUnits' then 1
    when 'reservedHostControls' then 100
    when 'exclusiveLatchBelowUnits' then 128
    when 'skipSharedLatchBelowUnits' then 64
    when 'epochJump' then 1000
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
--! Included rules/span_of.sql
-- A limit in milliseconds as an interval. Caller: every function. Locks: none.
create or replace function relay.span_of(p_name text)
returns interval
language sql immutable parallel safe
as $$ select make_interval(secs => relay.limit_of(p_name) / 1000.0) $$;
--! EndIncluded rules/span_of.sql
--! Included rules/latch_space.sql
-- First key of the advisory locks on cells; the second is cell.latch. Caller: every function that grants or changes a cell.
create or replace function relay.latch_space()
returns int
language sql immutable parallel safe
as $$ select 1330790241 $$;
--! EndIncluded rules/latch_space.sql

create table relay.cell (
  cell_id text not null,
  url text not null,
  region text not null,
  admission text not null default 'general',
  roll_isolated_at timestamptz,
  capacity_units int not null,
  connection_hard_cap int,
  connection_unobserved_bound int,
  unit_limit int not null generated always as (
    coalesce(connection_hard_cap - relay.limit_of('reservedHostControls')::int - connection_unobserved_bound, capacity_units)) stored,
  admit_mode text not null default 'db',
  flags jsonb not null default '{}',
  flags_generation bigint not null default 0,
  drain_incarnation uuid,
  drain_grace_ms int,
  drain_pace_ms int,
  latch int not null generated always as identity,
  registered_at timestamptz not null,
  constraint cell_pkey primary key (cell_id),
  constraint cell_latch_key unique (latch),
  constraint cell_id_length check (length(cell_id) between 1 and 128),
  constraint cell_url_length check (length(url) between 1 and 2048),
  constraint cell_region_length check (length(region) between 1 and 128),
  constraint cell_admission_known check (admission in ('general', 'migration-only', 'existing-only')),
  constraint cell_roll_stamp_while_migration_only check (roll_isolated_at is null or admission = 'migration-only'),
  constraint cell_capacity_range check (capacity_units between 1 and 100000),
  constraint cell_cap_and_bound_together check ((connection_hard_cap is null) = (connection_unobserved_bound is null)),
  constraint cell_bound_leaves_room check (
    connection_unobserved_bound between 0 and connection_hard_cap - relay.limit_of('reservedHostControls') - 1),
  constraint cell_admit_mode_known check (admit_mode in ('db', 'reserve')),
  constraint cell_flags_object check (jsonb_typeof(flags) = 'object'),
  constraint cell_drain_order_complete check (num_nulls(drain_incarnation, drain_grace_ms, drain_pace_ms) in (0, 3)),
  constraint cell_drain_times check (drain_grace_ms between 0 and 3600000 and drain_pace_ms between 0 and 1200000)
) with (fillfactor = 80);
comment on table relay.cell is 'A cell as operators registered it. Cold: a request of a host neither writes nor locks these rows';
comment on column relay.cell.cell_id is 'Name of the cell, chosen by the operator';
comment on column relay.cell.url is 'Origin that hosts and phones dial';
comment on column relay.cell.region is 'Region the cell is in; regions are whatever the cells say';
comment on column relay.cell.admission is 'general takes new hosts, migration-only keeps its hosts and takes migrated ones, existing-only is being emptied';
comment on column relay.cell.roll_isolated_at is 'When the cell was set apart for the replacement of its process; older than 2 h it means nothing';
comment on column relay.cell.capacity_units is 'Units that an uncapped cell may carry';
comment on column relay.cell.connection_hard_cap is 'Connections that the machine cannot exceed; null on an uncapped cell';
comment on column relay.cell.connection_unobserved_bound is 'Units of a capped cell kept free for what its heartbeat cannot show yet';
comment on column relay.cell.unit_limit is 'Load below which the cell is given hosts: hard cap - 100 - unobserved bound, or the capacity';
comment on column relay.cell.admit_mode is 'db: the cell asks Postgres before it admits a host; reserve: it admits from bookings and memory';
comment on column relay.cell.flags is 'Settings that the cell reads from its own row';
comment on column relay.cell.flags_generation is 'Rises with every change of flags; a cell ignores an older one';
comment on column relay.cell.drain_incarnation is 'Process that is told to drain; another process of the cell ignores the order';
comment on column relay.cell.drain_grace_ms is 'How long splices may go on after a host was told, milliseconds';
comment on column relay.cell.drain_pace_ms is 'Time over which the hosts are told, milliseconds';
comment on column relay.cell.latch is 'Second key of the advisory lock under which hosts are granted to this cell and the cell is changed';
comment on column relay.cell.registered_at is 'When the cell was first registered';

create table relay.cell_runtime (
  cell_id text not null,
  incarnation uuid not null,
  started_at timestamptz not null,
  ready boolean not null,
  heard_at timestamptz not null,
  enforced_units int not null,
  inclusion_watermark bigint not null,
  total_connections int,
  in_flight_connections int,
  reserved_units int,
  constraint cell_runtime_pkey primary key (cell_id),
  constraint cell_runtime_enforced_units_range check (enforced_units >= 0),
  constraint cell_runtime_watermark_range check (inclusion_watermark >= 0),
  constraint cell_runtime_counters_together check (
    num_nulls(total_connections, in_flight_connections, reserved_units) in (0, 3))
) with (fillfactor = 80);
comment on table relay.cell_runtime is 'The last heartbeat of each cell';
comment on column relay.cell_runtime.cell_id is 'The cell; no foreign key, which would lock its row';
comment on column relay.cell_runtime.incarnation is 'The process, by the uuid it took at boot';
comment on column relay.cell_runtime.started_at is 'Boot of the process by its own clock: a new process must be strictly newer';
comment on column relay.cell_runtime.ready is 'Whether the process says that it can serve';
comment on column relay.cell_runtime.heard_at is 'When the heartbeat was accepted; a cell heard 45 s ago is not live';
comment on column relay.cell_runtime.enforced_units is 'Units the process counts against its limit';
comment on column relay.cell_runtime.inclusion_watermark is 'A lease with this mark or a lower one is part of the counts of this heartbeat';
comment on column relay.cell_runtime.total_connections is 'Sockets of a capped cell';
comment on column relay.cell_runtime.in_flight_connections is 'Upgrades under way on a capped cell';
comment on column relay.cell_runtime.reserved_units is 'Units a capped cell keeps for what it expects';

create table relay.assignment (
  user_id text not null,
  relay_host_id text not null,
  cell_id text not null,
  epoch bigint not null,
  last_activity_at timestamptz not null,
  unattached_since timestamptz,
  preferred_region text,
  preferred_region_at timestamptz,
  last_close_reason text,
  last_close_reason_at timestamptz,
  constraint assignment_pkey primary key (user_id, relay_host_id),
  constraint assignment_user_id_length check (length(user_id) between 1 and 256),
  constraint assignment_relay_host_id_length check (length(relay_host_id) between 1 and 128),
  constraint assignment_epoch_range check (epoch between 1 and 9007199254740991),
  constraint assignment_preference_dated check ((preferred_region is null) = (preferred_region_at is null)),
  constraint assignment_close_reason_dated check ((last_close_reason is null) = (last_close_reason_at is null)),
  constraint assignment_close_reason_length check (length(last_close_reason) between 1 and 64)
) with (fillfactor = 80);
comment on table relay.assignment is 'Which cell a host belongs on, at which epoch. Never deleted: the epoch of a host must not repeat';
comment on column relay.assignment.user_id is 'Account that the host is signed in to';
comment on column relay.assignment.relay_host_id is 'The host';
comment on column relay.assignment.cell_id is 'Home of the host; no foreign key, which would lock the row of the cell';
comment on column relay.assignment.epoch is 'Rises at every move and never falls; a cell serves a host at exactly this epoch';
comment on column relay.assignment.last_activity_at is 'Last time that the host was granted, attached, released or swept; at most a minute behind';
comment on column relay.assignment.unattached_since is 'First grant since the host was last attached; null while it is attached or was never granted';
comment on column relay.assignment.preferred_region is 'Region the host last asked for';
comment on column relay.assignment.preferred_region_at is 'When it asked; older than 30 d the preference is not used';
comment on column relay.assignment.last_close_reason is 'Why the host closed its last control, for the phone that finds it gone';
comment on column relay.assignment.last_close_reason_at is 'When it closed';

create table relay.lease (
  user_id text not null,
  relay_host_id text not null,
  cell_id text not null,
  epoch bigint not null,
  incarnation uuid,
  generation bigint,
  state text not null,
  units int not null,
  inclusion_watermark bigint,
  expires_at timestamptz not null,
  retire_until timestamptz,
  constraint lease_pkey primary key (user_id, relay_host_id, cell_id),
  constraint lease_state_known check (state in ('granted', 'active', 'retiring')),
  constraint lease_units_range check (units >= 0),
  constraint lease_granted_is_unattached check (state <> 'granted' or num_nonnulls(incarnation, generation, inclusion_watermark) = 0),
  constraint lease_active_is_attached check (state <> 'active' or num_nulls(incarnation, generation, inclusion_watermark) = 0),
  constraint lease_retiring_ends check ((state = 'retiring') = (retire_until is not null))
) with (fillfactor = 80);
-- Finds what a heartbeat cannot show yet. No column that a renewal changes stands in it, and there is no index on
-- expires_at: either would end HOT updates of the renewals, ×0.67.
create index lease_observed_idx on relay.lease (cell_id, incarnation, inclusion_watermark);
comment on table relay.lease is 'What a host holds on a cell: a promise (granted), a seat (active), or the rest of a seat that it was moved off (retiring)';
comment on column relay.lease.user_id is 'Account of the host';
comment on column relay.lease.relay_host_id is 'The host';
comment on column relay.lease.cell_id is 'The cell';
comment on column relay.lease.epoch is 'Epoch of the assignment that it was given for';
comment on column relay.lease.incarnation is 'Process that the host is attached to; null until it attaches';
comment on column relay.lease.generation is 'Generation of the control connection; null until it attaches';
comment on column relay.lease.state is 'granted, active or retiring';
comment on column relay.lease.units is 'Units the cell last reported for the host: control 1, each splice 2';
comment on column relay.lease.inclusion_watermark is 'First heartbeat whose counts include the host; null until it attaches';
comment on column relay.lease.expires_at is 'From then on the lease counts for nothing';
comment on column relay.lease.retire_until is 'End of the grace of a retiring lease';

create table relay.change (
  id bigint generated always as identity,
  kind text not null,
  from_cell text,
  to_cell text,
  user_id text,
  relay_host_id text,
  epoch bigint,
  rule text,
  detail jsonb,
  at timestamptz not null,
  constraint change_pkey primary key (id),
  constraint change_kind_known check (kind in (
    'placed', 'moved', 'granted', 'lease_ended', 'recorded', 'admission', 'mode', 'flags', 'effective_mode', 'drain',
    'migration', 'fence', 'cell_registered', 'cell_retired', 'incarnation'))
);
-- No index by cell: a reader walks all ids after its cursor for the gaps, and picks what concerns it on the way; two
-- more indexes made a move 10 % dearer.
comment on table relay.change is 'Every change of state, written in the transaction that makes it; read by cursor, kept 15 min';
comment on column relay.change.id is 'Order of the changes, nearly: ids are taken before commit, so a reader keeps the gaps';
comment on column relay.change.kind is 'What happened, from a closed set';
comment on column relay.change.from_cell is 'Cell that the change takes something from';
comment on column relay.change.to_cell is 'Cell that the change gives something to, or whose state it is';
comment on column relay.change.user_id is 'Account of the host';
comment on column relay.change.relay_host_id is 'The host';
comment on column relay.change.epoch is 'Epoch of the host after the change';
comment on column relay.change.rule is 'Rule of the decision table that placed or moved the host';
comment on column relay.change.detail is 'What else a reader needs; for moved: forced, retire_until in epoch milliseconds';
comment on column relay.change.at is 'When, by the database clock';

create table relay.audit (
  id bigint generated always as identity,
  who text not null,
  function text not null,
  arguments_digest text not null,
  outcome text not null,
  at timestamptz not null,
  constraint audit_pkey primary key (id)
);
comment on table relay.audit is 'One row for each call of an operator function, refused ones too';
comment on column relay.audit.id is 'Order of the calls';
comment on column relay.audit.who is 'Role that the session logged in as';
comment on column relay.audit.function is 'Function called';
comment on column relay.audit.arguments_digest is 'SHA-256 of the arguments as JSON, hexadecimal';
comment on column relay.audit.outcome is 'What the function answered';
comment on column relay.audit.at is 'When, by the database clock';

create table relay.setting (
  only_row boolean not null default true,
  hearing_since timestamptz,
  epoch_base bigint not null default 0,
  timeline bigint not null,
  changes_pruned_to bigint not null default 0,
  constraint setting_pkey primary key (only_row),
  constraint setting_one_row check (only_row),
  constraint setting_epoch_base_range check (epoch_base between 0 and 9007199254740991)
) with (fillfactor = 80);
comment on table relay.setting is 'What the fleet as a whole knows about itself: one row';
comment on column relay.setting.only_row is 'Keeps the table at one row';
comment on column relay.setting.hearing_since is 'When cells were heard again after all had been silent for 20 s: for 60 s nobody is judged by a silence';
comment on column relay.setting.epoch_base is 'Every new epoch is above it; raised past all epochs when the server''s timeline changes';
comment on column relay.setting.timeline is 'Timeline of the server for which epoch_base is right';
comment on column relay.setting.changes_pruned_to is 'Highest id of relay.change that was pruned';
insert into relay.setting (timeline) values (relay.timeline());

-- credentials: begin
create table relay.device (
  user_id text not null,
  relay_host_id text not null,
  relay_device_id text not null,
  current_hash text not null,
  version bigint not null,
  resume_expires_at timestamptz not null,
  previous_hash text,
  grace_expires_at timestamptz,
  revoked_at timestamptz,
  installed_at timestamptz not null,
  constraint device_pkey primary key (user_id, relay_host_id, relay_device_id),
  constraint device_user_id_length check (length(user_id) between 1 and 256),
  constraint device_relay_host_id_length check (length(relay_host_id) between 1 and 128),
  constraint device_id_length check (length(relay_device_id) between 1 and 128),
  constraint device_current_hash_form check (current_hash ~ '^[A-Za-z0-9_-]{43}$'),
  constraint device_previous_hash_form check (previous_hash ~ '^[A-Za-z0-9_-]{43}$'),
  constraint device_version_range check (version between 1 and 9007199254740991),
  constraint device_grace_complete check ((previous_hash is null) = (grace_expires_at is null)),
  constraint device_grace_needs_predecessor check (previous_hash is null or version > 1)
) with (fillfactor = 80);
-- Not unique: a phone that installs one token on two devices is its own problem, not an error for ever.
create index device_current_hash_idx on relay.device (relay_host_id, current_hash);
create index device_previous_hash_idx on relay.device (relay_host_id, previous_hash) where previous_hash is not null;
comment on table relay.device is 'A paired phone of a host: the hashes of its current resume token and of the one before. States: relay.resume_state';
comment on column relay.device.user_id is 'Account of the host';
comment on column relay.device.relay_host_id is 'The host';
comment on column relay.device.relay_device_id is 'The phone, by the id its host gave it';
comment on column relay.device.current_hash is 'base64url(SHA-256(text of the resume token))';
comment on column relay.device.version is 'Of the current token: 1 at the first install, one more at each';
comment on column relay.device.resume_expires_at is 'End of the current token: 30 d after its install or its last confirmed resume';
comment on column relay.device.previous_hash is 'Token of the version before, in the same form; null if it may not come back';
comment on column relay.device.grace_expires_at is 'End of the previous token: 24 h after its replacement';
comment on column relay.device.revoked_at is 'When the host took the access away; a new install clears it';
comment on column relay.device.installed_at is 'When the current token was installed';

create table relay.invite (
  token_hash text not null,
  user_id text not null,
  relay_host_id text not null,
  relay_device_id text not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  attempts int not null default 0,
  reserved_by text,
  reserved_until timestamptz,
  consumed_at timestamptz,
  invalidated_at timestamptz,
  constraint invite_pkey primary key (token_hash),
  constraint invite_token_hash_form check (token_hash ~ '^[A-Za-z0-9_-]{43}$'),
  constraint invite_user_id_length check (length(user_id) between 1 and 256),
  constraint invite_relay_host_id_length check (length(relay_host_id) between 1 and 128),
  constraint invite_device_id_length check (length(relay_device_id) between 1 and 128),
  constraint invite_attempts_range check (attempts between 0 and relay.limit_of('inviteMaxAttempts')),
  constraint invite_reservation_complete check (num_nulls(reserved_by, reserved_until) in (0, 2)),
  constraint invite_reservation_counted check ((attempts = 0) = (reserved_by is null)),
  constraint invite_conn_id_length check (length(reserved_by) between 1 and 128),
  constraint invite_one_end check (num_nonnulls(consumed_at, invalidated_at) <= 1)
) with (fillfactor = 80);
create index invite_device_idx on relay.invite (user_id, relay_host_id, relay_device_id);
-- For the sweep; expires_at never changes, so reservations stay HOT updates.
create index invite_expires_at_idx on relay.invite (expires_at);
comment on table relay.invite is 'An invitation to pair one device with a host. States: relay.invite_state';
comment on column relay.invite.token_hash is 'base64url(SHA-256(text of the invite token))';
comment on column relay.invite.user_id is 'Account of the host';
comment on column relay.invite.relay_host_id is 'The host';
comment on column relay.invite.relay_device_id is 'Device that the install makes';
comment on column relay.invite.created_at is 'When the host asked for it';
comment on column relay.invite.expires_at is 'No connection is opened from then on; 570 s after created_at';
comment on column relay.invite.attempts is 'Reservations so far, at most 5';
comment on column relay.invite.reserved_by is 'Phone connection (connId) of the last reservation';
comment on column relay.invite.reserved_until is 'When the last reservation ended or ends: 15 s after its start, or as it was released; usable again 2 s later';
comment on column relay.invite.consumed_at is 'When an install used it';
comment on column relay.invite.invalidated_at is 'When a newer invite, a direct install or a revoke ended it';

create table relay.install_result (
  user_id text not null,
  relay_host_id text not null,
  relay_device_id text not null,
  req_id text not null,
  authorization_mode text not null,
  current_version bigint not null,
  resume_expires_at timestamptz not null,
  grace_expires_at timestamptz,
  committed_at timestamptz not null,
  constraint install_result_pkey primary key (user_id, relay_host_id, relay_device_id, req_id),
  constraint install_result_req_id_length check (length(req_id) between 1 and 128),
  constraint install_result_mode_known check (authorization_mode in ('relay-basis', 'authenticated-direct'))
);
create index install_result_committed_at_idx on relay.install_result (committed_at);
comment on table relay.install_result is 'What a committed install answered, for its replays and for install_status; kept 30 d';
comment on column relay.install_result.user_id is 'Account of the host';
comment on column relay.install_result.relay_host_id is 'The host';
comment on column relay.install_result.relay_device_id is 'The device';
comment on column relay.install_result.req_id is 'Request of the host';
comment on column relay.install_result.authorization_mode is 'What vouched: relay-basis or authenticated-direct';
comment on column relay.install_result.current_version is 'Version that the install made';
comment on column relay.install_result.resume_expires_at is 'End of that version as it was then';
comment on column relay.install_result.grace_expires_at is 'End of the version before; null if it got no grace';
comment on column relay.install_result.committed_at is 'When it was installed';

create table relay.confirm_result (
  user_id text not null,
  relay_host_id text not null,
  req_id text not null,
  basis_conn_id text not null,
  relay_device_id text not null,
  basis_version bigint not null,
  current_version bigint not null,
  accepted_as text not null,
  resume_expires_at timestamptz not null,
  grace_expires_at timestamptz,
  confirmed_at timestamptz not null,
  constraint confirm_result_pkey primary key (user_id, relay_host_id, req_id),
  constraint confirm_result_req_id_length check (length(req_id) between 1 and 128),
  constraint confirm_result_conn_id_length check (length(basis_conn_id) between 1 and 128),
  constraint confirm_result_accepted_as_known check (accepted_as in ('current', 'grace'))
);
create index confirm_result_confirmed_at_idx on relay.confirm_result (confirmed_at);
comment on table relay.confirm_result is 'What a confirmed resume answered, for its replays; kept 24 h';
comment on column relay.confirm_result.user_id is 'Account of the host';
comment on column relay.confirm_result.relay_host_id is 'The host';
comment on column relay.confirm_result.req_id is 'Request of the host';
comment on column relay.confirm_result.basis_conn_id is 'Resume connection that the confirmation was for';
comment on column relay.confirm_result.relay_device_id is 'Device of that connection';
comment on column relay.confirm_result.basis_version is 'Token version that the phone had shown';
comment on column relay.confirm_result.current_version is 'Current token version of the device then';
comment on column relay.confirm_result.accepted_as is 'current: the token was renewed; grace: nothing changed';
comment on column relay.confirm_result.resume_expires_at is 'End of the current version as it was then';
comment on column relay.confirm_result.grace_expires_at is 'End of the version before, if it still worked then';
comment on column relay.confirm_result.confirmed_at is 'When it was confirmed';

create table relay.direct_authorization (
  user_id text not null,
  relay_host_id text not null,
  direct_auth_id text not null,
  relay_device_id text not null,
  recorded_at timestamptz not null,
  expires_at timestamptz not null,
  used_at timestamptz,
  constraint direct_authorization_pkey primary key (user_id, relay_host_id, direct_auth_id),
  constraint direct_authorization_id_length check (length(direct_auth_id) between 1 and 128)
);
create index direct_authorization_recorded_at_idx on relay.direct_authorization (recorded_at);
comment on table relay.direct_authorization is 'A host''s word that it authenticated a device itself: good for one install; kept 30 d';
comment on column relay.direct_authorization.user_id is 'Account of the host';
comment on column relay.direct_authorization.relay_host_id is 'The host';
comment on column relay.direct_authorization.direct_auth_id is 'Id that the host gave it';
comment on column relay.direct_authorization.relay_device_id is 'Device it is for';
comment on column relay.direct_authorization.recorded_at is 'When an install named it first';
comment on column relay.direct_authorization.expires_at is 'No install from then on: 30 s after recorded_at';
comment on column relay.direct_authorization.used_at is 'When an install used it';

create table relay.rate_window (
  user_id text not null,
  action text not null,
  started_at timestamptz not null,
  used int not null,
  constraint rate_window_pkey primary key (user_id, action),
  constraint rate_window_action_known check (action in ('invite-create')),
  constraint rate_window_used_range check (used >= 0)
) with (fillfactor = 80);
comment on table relay.rate_window is 'How often an account did something in its current window';
comment on column relay.rate_window.user_id is 'The account';
comment on column relay.rate_window.action is 'What is counted';
comment on column relay.rate_window.started_at is 'Start of the window of a minute, -infinity before the first';
comment on column relay.rate_window.used is 'Actions in it';

create type relay_v1.create_invite_result as (outcome text, expires_at timestamptz, max_attempts int);
comment on type relay_v1.create_invite_result is 'Answer of create_invite';
create type relay_v1.open_connection_result as (
  outcome text, user_id text, epoch bigint, credential_kind text, relay_device_id text, lease_expires_at timestamptz,
  credential_version bigint, accepted_as text, resume_expires_at timestamptz, grace_expires_at timestamptz,
  reserved_until timestamptz, host_close_reason text);
comment on type relay_v1.open_connection_result is 'Answer of open_connection';
create type relay_v1.install_credential_result as (
  outcome text, authorization_mode text, current_version bigint, resume_expires_at timestamptz,
  grace_expires_at timestamptz);
comment on type relay_v1.install_credential_result is 'Answer of install_credential and install_status';
create type relay_v1.confirm_resume_result as (
  outcome text, current_version bigint, accepted_as text, renewed boolean, resume_expires_at timestamptz,
  grace_expires_at timestamptz);
comment on type relay_v1.confirm_resume_result is 'Answer of confirm_resume';

--! Included credentials/invite_state.sql
-- What an invite is at one moment: computed from its row, never stored, so that a time-out needs nobody to write it.
-- Caller: open_connection, release_invite, install_credential, credential_owner. Locks: none.
--
-- First match wins. A reservation ends by itself (reserved_until passes) or by release_invite (reserved_until = then).
-- | state       | when                                                | opens a connection | event -> next state                              |
-- |-------------|-----------------------------------------------------|--------------------|--------------------------------------------------|
-- | consumed    | an install used it                                  | no, spent          | final                                            |
-- | invalidated | a newer invite, a direct install or a revoke did it | no, spent          | final                                            |
-- | reserved    | now < reserved_until                                | no, refused        | install -> consumed; release, time-out -> below  |
-- | invalidated | the last attempt ended unused                       | no, spent          | final                                            |
-- | expired     | now >= expires_at                                   | no, refused        | final                                            |
-- | cooldown    | now < reserved_until + 2 s                          | no, refused        | time -> available                                |
-- | available   | otherwise                                           | yes                | open_connection -> reserved, attempts + 1        |
-- | (null)      | no such invite                                      | no, spent          |                                                  |
-- A reservation outlives expires_at: who began in time may finish. A newer invite, a direct install and a revoke
-- invalidate every state that is not final.
create or replace function relay.invite_state(p_invite relay.invite, p_now timestamptz)
returns text
language sql stable parallel safe
as $$
  select case
    when p_invite.consumed_at is not null then 'consumed'
    when p_invite.invalidated_at is not null then 'invalidated'
    when p_now < p_invite.reserved_until then 'reserved'
    when p_invite.attempts >= relay.limit_of('inviteMaxAttempts') then 'invalidated'
    when p_now >= p_invite.expires_at then 'expired'
    when p_now < p_invite.reserved_until + relay.span_of('inviteCooldownMs') then 'cooldown'
    when p_now < p_invite.expires_at then 'available'
  end
$$;
--! EndIncluded credentials/invite_state.sql
--! Included credentials/resume_state.sql
-- What one version of a device's resume token is at one moment. The device row holds the current version and the one
-- before it; older hashes are forgotten.
-- Caller: open_connection, confirm_resume, credential_owner. Locks: none.
--
-- First match wins.
-- | state   | when                                             | opens a connection | confirm_resume answers     |
-- |---------|--------------------------------------------------|--------------------|----------------------------|
-- | revoked | the device is revoked                            | no, spent          | reject-revoked             |
-- | expired | current version, 30 d since install or renewal   | no, refused        | reject-expired             |
-- | current | current version                                  | yes                | renewed for 30 d           |
-- | grace   | the version before, < 24 h after its replacement | yes                | confirmed, nothing changes |
-- | retired | any other version, or no such device             | no, spent          | reject-retired             |
create or replace function relay.resume_state(p_device relay.device, p_version bigint, p_now timestamptz)
returns text
language sql immutable parallel safe
as $$
  select case
    when p_device.revoked_at is not null then 'revoked'
    when p_version = p_device.version and p_now >= p_device.resume_expires_at then 'expired'
    when p_version = p_device.version then 'current'
    when p_version = p_device.version - 1 and p_now < p_device.grace_expires_at then 'grace'
    else 'retired'
  end
$$;
--! EndIncluded credentials/resume_state.sql
--! Included credentials/version_shown.sql
-- Which version of a device's resume token has this hash; null if neither of the two that the row knows.
-- Caller: open_connection, credential_owner. Locks: none.
create or replace function relay.version_shown(p_device relay.device, p_token_hash text)
returns bigint
language sql immutable parallel safe
as $$
  select case p_token_hash
    when p_device.current_hash then p_device.version
    when p_device.previous_hash then p_device.version - 1
  end
$$;
--! EndIncluded credentials/version_shown.sql
--! Included credentials/credential_standing.sql
-- What a state of an invite or of a resume token means to a phone that shows it.
-- Caller: open_connection, credential_owner. Locks: none.
-- | standing | states                     | a cell closes | why                                                          |
-- |----------|----------------------------|---------------|--------------------------------------------------------------|
-- | usable   | available, current, grace  |               |                                                              |
-- | refused  | reserved, cooldown, expired| 4401          | it is this host's; a look-up at the director changes nothing |
-- | spent    | consumed, invalidated, revoked, retired, unknown | 4409 | the director has the last word: 401, or `invalid invite` |
create or replace function relay.credential_standing(p_state text)
returns text
language sql immutable parallel safe
as $$
  select case
    when p_state in ('available', 'current', 'grace') then 'usable'
    when p_state in ('reserved', 'cooldown', 'expired') then 'refused'
    else 'spent'
  end
$$;
--! EndIncluded credentials/credential_standing.sql
--! Included credentials/open_grace.sql
-- Until when the device's previous resume token still works; null if it no longer does.
-- Caller: open_connection, confirm_resume. Locks: none.
create or replace function relay.open_grace(p_device relay.device, p_now timestamptz)
returns timestamptz
language sql immutable parallel safe
as $$
  select case when p_now < p_device.grace_expires_at then p_device.grace_expires_at end
$$;
--! EndIncluded credentials/open_grace.sql
--! Included credentials/find_device.sql
-- The device whose current or previous resume token this is, on any account of the host (one desktop may have been
-- signed in to several); all null if there is none. Should a phone have installed one token twice, the row that
-- still works wins, then the latest.
-- PL/pgSQL keeps the plan for the session; an SQL function that is not inlined plans anew in each transaction, ×5.
-- Caller: open_connection, credential_owner. Locks: none.
create or replace function relay.find_device(p_relay_host_id text, p_token_hash text)
returns relay.device
language plpgsql stable
as $$
declare
  v_device relay.device;
begin
  select d.* into v_device
  from relay.device d
  where d.relay_host_id = p_relay_host_id and (d.current_hash = p_token_hash or d.previous_hash = p_token_hash)
  order by d.revoked_at nulls first, d.current_hash = p_token_hash desc, d.installed_at desc
  limit 1;
  return v_device;
end
$$;
--! EndIncluded credentials/find_device.sql
--! Included credentials/credential_owner.sql
-- The account whose credential this is, or null if it is nobody's, spent or expired. For an invite a reservation or a
-- cooldown is no obstacle: only its cell judges those, and the director reserves nothing.
-- Caller: resolve. Locks: none.
create or replace function relay.credential_owner(
  p_relay_host_id text, p_token_hash text, p_kind text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_device relay.device;
  v_invite relay.invite;
begin
  if p_kind = 'resume' then
    v_device := relay.find_device(p_relay_host_id, p_token_hash);
    if relay.resume_state(v_device, relay.version_shown(v_device, p_token_hash), p_now) in ('current', 'grace') then
      return v_device.user_id;
    end if;
    return null;
  end if;
  select i.* into v_invite from relay.invite i
  where i.token_hash = p_token_hash and i.relay_host_id = p_relay_host_id;
  if relay.invite_state(v_invite, p_now) in ('available', 'reserved', 'cooldown') then
    return v_invite.user_id;
  end if;
  return null;
end
$$;
--! EndIncluded credentials/credential_owner.sql
--! Included credentials/seat_for_phone.sql
-- Where a phone finds its host, seen from one cell: the host's row against the seats that the cell holds.
-- Caller: open_connection. Locks: none: a move that commits now reaches the cell through the change log.
-- | place     | when                                                                   |
-- |-----------|------------------------------------------------------------------------|
-- | elsewhere | no row; or it names another cell; or a seat here has another epoch     |
-- | detached  | the row names this cell, and the host has no active control on it      |
-- | attached  | the row names this cell and exactly the epoch of the host's seat on it |
-- A seat newer than its row is one that the ledger has not recorded yet: needs reserve mode.
-- lease_expires_at: when attached, the end of the host's lease here. A control whose renewals were missed is one all the
-- same (the cell renews or closes it): then what a grant of now would have, as resolve answers.
-- close_reason: when detached, what the host said as it left, for 24 h.
create or replace function relay.seat_for_phone(
  p_user_id text, p_relay_host_id text, p_cell_id text, p_seats jsonb, p_now timestamptz,
  out place text, out epoch bigint, out lease_expires_at timestamptz, out close_reason text)
language plpgsql stable
as $$
declare
  v_row relay.assignment;
  v_seat_epoch bigint;
begin
  select a.* into v_row from relay.assignment a where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id;
  select s.epoch into v_seat_epoch from jsonb_to_recordset(p_seats) as s(user_id text, epoch bigint)
  where s.user_id = p_user_id
  order by s.epoch desc limit 1;
  epoch := v_row.epoch;
  if v_row.cell_id is distinct from p_cell_id or v_seat_epoch <> v_row.epoch then
    place := 'elsewhere';
  elsif v_seat_epoch is null then
    place := 'detached';
    if v_row.last_close_reason_at > p_now - relay.span_of('hostCloseReasonTtlMs') then
      close_reason := v_row.last_close_reason;
    end if;
  else
    place := 'attached';
    select l.expires_at into lease_expires_at from relay.lease l
    where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id and l.cell_id = p_cell_id and l.epoch = v_row.epoch
      and l.expires_at > p_now;
    lease_expires_at := coalesce(lease_expires_at, p_now + relay.span_of('grantLeaseMs'));
  end if;
end
$$;
--! EndIncluded credentials/seat_for_phone.sql
--! Included credentials/reserve_invite.sql
-- Gives an available invite to one phone connection, for 15 s; counts an attempt. Answers until when.
-- Caller: open_connection, which holds the invite's row. Locks: none further.
create or replace function relay.reserve_invite(p_token_hash text, p_conn_id text, p_now timestamptz)
returns timestamptz
language plpgsql
as $$
declare
  v_reserved_until constant timestamptz := p_now + relay.span_of('inviteReservationMs');
begin
  update relay.invite i
  set attempts = i.attempts + 1,
    reserved_by = p_conn_id,
    reserved_until = v_reserved_until
  where i.token_hash = p_token_hash;
  return v_reserved_until;
end
$$;
--! EndIncluded credentials/reserve_invite.sql
--! Included credentials/lock_open_invites.sql
-- Locks the invites of a device that are not final yet, and answers their hashes. They are all that the caller may write
-- to: an invite that appears later comes after it, and would be waited for out of order.
-- Caller: create_invite, apply_install, revoke_device. Locks: these invites, in the order of token_hash.
create or replace function relay.lock_open_invites(p_user_id text, p_relay_host_id text, p_relay_device_id text)
returns text[]
language plpgsql
as $$
begin
  return array(
    select i.token_hash from relay.invite i
    where i.user_id = p_user_id and i.relay_host_id = p_relay_host_id and i.relay_device_id = p_relay_device_id
      and i.consumed_at is null and i.invalidated_at is null
    order by i.token_hash
    for update);
end
$$;
--! EndIncluded credentials/lock_open_invites.sql
--! Included credentials/invalidate_invites.sql
-- Ends invites, reserved ones too: the phone that holds one can no longer install.
-- Caller: create_invite, apply_install (authenticated-direct), revoke_device, with what lock_open_invites answered.
-- Locks: none further.
create or replace function relay.invalidate_invites(p_token_hashes text[], p_now timestamptz)
returns void
language plpgsql
as $$
begin
  update relay.invite i set invalidated_at = p_now where i.token_hash = any(p_token_hashes);
end
$$;
--! EndIncluded credentials/invalidate_invites.sql
--! Included credentials/take_from_rate_window.sql
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
--! EndIncluded credentials/take_from_rate_window.sql
--! Included credentials/create_invite.sql
-- A host offers a device to pair with: a new invite, in place of all earlier ones of this device.
-- Caller: a cell, which made the token and passes its hash. Locks: the account's rate window, then the device's open invites.
-- | outcome                | when                                                          |
-- |------------------------|---------------------------------------------------------------|
-- | stale_cell_incarnation | the caller is not the cell's process of now                   |
-- | rate_limit_exceeded    | the account made 30 invites in the last minute's fixed window |
-- | created                | usable until expires_at, in max_attempts attempts             |
-- The rate window's row also makes the invites of one account follow each other: two new ones cannot both survive.
create or replace function relay_v1.create_invite(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, relay_device_id text, token_hash text)
returns relay_v1.create_invite_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.create_invite_result;
  v_earlier text[];
  v_now timestamptz;
begin
  if not relay.is_incarnation(create_invite.cell_id, create_invite.incarnation) then
    v_result.outcome := 'stale_cell_incarnation';
    return v_result;
  end if;
  if not relay.take_from_rate_window(
    create_invite.user_id, 'invite-create', relay.limit_of('invitesPerAccountPerMinute')::int, interval '1 minute') then
    v_result.outcome := 'rate_limit_exceeded';
    return v_result;
  end if;
  v_earlier := relay.lock_open_invites(
    create_invite.user_id, create_invite.relay_host_id, create_invite.relay_device_id);
  v_now := relay.now();
  perform relay.invalidate_invites(v_earlier, v_now);
  v_result.outcome := 'created';
  v_result.expires_at := v_now + relay.span_of('inviteTtlMs') - relay.span_of('inviteSkewMs');
  v_result.max_attempts := relay.limit_of('inviteMaxAttempts');
  insert into relay.invite (token_hash, user_id, relay_host_id, relay_device_id, created_at, expires_at)
  values (create_invite.token_hash, create_invite.user_id, create_invite.relay_host_id, create_invite.relay_device_id,
    v_now, v_result.expires_at);
  return v_result;
end
$$;
comment on function relay_v1.create_invite(text, text, text, uuid, text, text) is
  'A new invite for a device, in place of its earlier ones; created, rate_limit_exceeded or stale_cell_incarnation';
--! EndIncluded credentials/create_invite.sql
--! Included credentials/open_connection.sql
-- A phone shows a credential on a cell: all that the cell must know before it asks the host, in one call.
-- Caller: a cell. `seats`: the hosts of this id with an active control on the calling cell, [{"user_id", "epoch"}]; `conn_id`
-- is what an invite is reserved for. Locks: the invite's row; a resume locks and writes nothing.
--
-- First match wins (standing: credential_standing; place: seat_for_phone).
-- | standing       | place              | outcome                | a cell closes | reserves |
-- |----------------|--------------------|------------------------|---------------|----------|
-- |                |                    | stale_cell_incarnation | the process leaves | no  |
-- | spent          |                    | unknown_credential     | 4409          | no       |
-- | refused,usable | elsewhere          | not_here               | 4409          | no       |
-- | refused        | detached, attached | credential_refused     | 4401          | no       |
-- | usable         | detached           | host_offline           | 4404, with host_close_reason | no |
-- | usable         | attached           | opened                 |               | an invite: 15 s, one attempt |
-- An absent host costs an invite no attempt: a phone that waits for its desktop must not burn its five.
-- A reservation ends by install_credential, release_invite or time, whichever is first.
create or replace function relay_v1.open_connection(
  cell_id text, incarnation uuid, relay_host_id text, credential_hash text, conn_id text, seats jsonb)
returns relay_v1.open_connection_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.open_connection_result;
  v_device relay.device;
  v_invite relay.invite;
  v_seat record;
  v_state text;
  v_standing text;
  v_now timestamptz;
begin
  if not relay.is_incarnation(open_connection.cell_id, open_connection.incarnation) then
    v_result.outcome := 'stale_cell_incarnation';
    return v_result;
  end if;
  v_device := relay.find_device(open_connection.relay_host_id, open_connection.credential_hash);
  if v_device.user_id is null then
    select i.* into v_invite from relay.invite i
    where i.token_hash = open_connection.credential_hash and i.relay_host_id = open_connection.relay_host_id
    for update;
  end if;
  v_now := relay.now();

  if v_device.user_id is not null then
    v_result.credential_version := relay.version_shown(v_device, open_connection.credential_hash);
    v_state := relay.resume_state(v_device, v_result.credential_version, v_now);
  else
    v_state := relay.invite_state(v_invite, v_now);
  end if;
  v_standing := relay.credential_standing(v_state);
  v_result.user_id := coalesce(v_device.user_id, v_invite.user_id);
  select * into v_seat from relay.seat_for_phone(
    v_result.user_id, open_connection.relay_host_id, open_connection.cell_id, open_connection.seats, v_now);
  v_result.outcome := case
    when v_standing = 'spent' then 'unknown_credential'
    when v_seat.place = 'elsewhere' then 'not_here'
    when v_standing = 'refused' then 'credential_refused'
    when v_seat.place = 'detached' then 'host_offline'
    else 'opened'
  end;
  v_result.host_close_reason := v_seat.close_reason;
  if v_result.outcome <> 'opened' then
    return v_result;
  end if;

  v_result.epoch := v_seat.epoch;
  v_result.lease_expires_at := v_seat.lease_expires_at;
  v_result.relay_device_id := coalesce(v_device.relay_device_id, v_invite.relay_device_id);
  if v_device.user_id is not null then
    v_result.credential_kind := 'resume';
    v_result.accepted_as := v_state;
    v_result.resume_expires_at := v_device.resume_expires_at;
    v_result.grace_expires_at := relay.open_grace(v_device, v_now);
  else
    v_result.credential_kind := 'invite';
    v_result.reserved_until := relay.reserve_invite(v_invite.token_hash, open_connection.conn_id, v_now);
  end if;
  return v_result;
end
$$;
comment on function relay_v1.open_connection(text, uuid, text, text, text, jsonb) is
  'A phone shows a credential on a cell: opened, or why not; reserves an invite for 15 s';
--! EndIncluded credentials/open_connection.sql
--! Included credentials/release_invite.sql
-- The phone connection that an invite was reserved for ended without an install: the attempt failed.
-- Caller: a cell. Locks: the invite's row.
-- | outcome                | when                                                                             |
-- |------------------------|----------------------------------------------------------------------------------|
-- | stale_cell_incarnation | the caller is not the cell's process of now; the reservation times out by itself |
-- | not_reserved           | it is not, or no longer, reserved for this connection: nothing changes           |
-- | cooldown               | usable again after 2 s                                                           |
-- | invalidated            | that was the fifth attempt                                                       |
create or replace function relay_v1.release_invite(
  cell_id text, incarnation uuid, relay_host_id text, token_hash text, conn_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_invite relay.invite;
  v_now timestamptz;
begin
  if not relay.is_incarnation(release_invite.cell_id, release_invite.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  select i.* into v_invite from relay.invite i
  where i.token_hash = release_invite.token_hash and i.relay_host_id = release_invite.relay_host_id
  for update;
  v_now := relay.now();
  if v_invite.reserved_by is distinct from release_invite.conn_id
    or relay.invite_state(v_invite, v_now) is distinct from 'reserved' then
    return 'not_reserved';
  end if;
  update relay.invite i set reserved_until = v_now where i.token_hash = v_invite.token_hash;
  if v_invite.attempts >= relay.limit_of('inviteMaxAttempts') then
    return 'invalidated';
  end if;
  return 'cooldown';
end
$$;
comment on function relay_v1.release_invite(text, uuid, text, text, text) is
  'The connection an invite was reserved for ended unused: cooldown, invalidated, not_reserved or stale_cell_incarnation';
--! EndIncluded credentials/release_invite.sql
--! Included credentials/rotate_device.sql
-- Makes a token hash the device's current one and answers the new row: apply_install says what becomes of the old one.
-- Caller: apply_install, which holds the device's row. `p_device` is that row, null if the device is new: two first
-- installs at once meet here, and the later one gets a unique violation.
-- Locks: none further.
create or replace function relay.rotate_device(
  p_device relay.device, p_user_id text, p_relay_host_id text, p_relay_device_id text, p_new_hash text, p_now timestamptz)
returns relay.device
language plpgsql
as $$
declare
  v_device relay.device;
  v_keeps_grace boolean := p_device.revoked_at is null and p_now < p_device.resume_expires_at;
begin
  if p_device.user_id is null then
    insert into relay.device as d (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at,
      installed_at)
    values (p_user_id, p_relay_host_id, p_relay_device_id, p_new_hash, 1, p_now + relay.span_of('resumeTtlMs'), p_now)
    returning d.* into v_device;
    return v_device;
  end if;
  update relay.device d
  set version = d.version + 1,
    current_hash = p_new_hash,
    previous_hash = case when v_keeps_grace then d.current_hash end,
    grace_expires_at = case when v_keeps_grace then p_now + relay.span_of('credentialGraceMs') end,
    resume_expires_at = p_now + relay.span_of('resumeTtlMs'),
    revoked_at = null,
    installed_at = p_now
  where d.user_id = p_user_id and d.relay_host_id = p_relay_host_id and d.relay_device_id = p_relay_device_id
  returning d.* into v_device;
  return v_device;
end
$$;
--! EndIncluded credentials/rotate_device.sql
--! Included credentials/claim_direct_authorization.sql
-- May this direct authorization vouch for an install of this device now? Records it when seen for the first time, with a
-- deadline of 30 s, so that an install refused for another reason can be tried again within them.
-- Caller: apply_install, which marks it used; p_known is its row, locked, null if there is none. Two first sights at once
-- meet here, and the later one gets a unique violation. Locks: none further.
-- | answer | when                                                              |
-- |--------|-------------------------------------------------------------------|
-- | false  | no id; or another device's; or used; or recorded 30 s ago or more |
-- | true   | otherwise                                                         |
create or replace function relay.claim_direct_authorization(
  p_known relay.direct_authorization, p_user_id text, p_relay_host_id text, p_relay_device_id text, p_direct_auth_id text,
  p_now timestamptz)
returns boolean
language plpgsql
as $$
begin
  if p_direct_auth_id is null then
    return false;
  elsif p_known.direct_auth_id is null then
    insert into relay.direct_authorization (user_id, relay_host_id, direct_auth_id, relay_device_id, recorded_at, expires_at)
    values (p_user_id, p_relay_host_id, p_direct_auth_id, p_relay_device_id, p_now,
      p_now + relay.span_of('directAuthorizationMs'));
    return true;
  end if;
  return p_known.relay_device_id = p_relay_device_id and p_known.used_at is null and p_now < p_known.expires_at;
end
$$;
--! EndIncluded credentials/claim_direct_authorization.sql
--! Included credentials/committed_install.sql
-- The result of a committed install, or outcome `not_found`.
-- Caller: install_status, apply_install. Locks: none.
create or replace function relay.committed_install(
  p_user_id text, p_relay_host_id text, p_relay_device_id text, p_req_id text)
returns relay_v1.install_credential_result
language plpgsql stable
as $$
declare
  v_result relay_v1.install_credential_result;
begin
  select 'committed', r.authorization_mode, r.current_version, r.resume_expires_at, r.grace_expires_at into v_result
  from relay.install_result r
  where r.user_id = p_user_id and r.relay_host_id = p_relay_host_id and r.relay_device_id = p_relay_device_id
    and r.req_id = p_req_id;
  v_result.outcome := coalesce(v_result.outcome, 'not_found');
  return v_result;
end
$$;
--! EndIncluded credentials/committed_install.sql
--! Included credentials/apply_install.sql
-- One attempt of install_credential: lock, look, decide, write.
-- Caller: install_credential. Locks: the device, its open invites (by token_hash), the direct authorization.
--
-- First match wins; everything is looked at after the locks.
-- | outcome                      | when                                                                               |
-- |------------------------------|------------------------------------------------------------------------------------|
-- | committed (replay)           | this req_id of this device is committed: its first result, nothing written         |
-- | invalid_relay_basis          | relay-basis, and no invite of this device is reserved for that connection now      |
-- | invalid_direct_authorization | authenticated-direct, and claim_direct_authorization refuses                       |
-- | current_hash_mismatch        | an expected hash was given and is not the device's current one (or has no device)  |
-- | committed                    | otherwise                                                                          |
-- Committed writes: version + 1 (1 for a new device), 30 d, the replaced token 24 h of grace, revoked cleared. A token
-- that was revoked or had expired gets no grace: it would come back to life. relay-basis consumes its invite,
-- authenticated-direct invalidates all open ones.
create or replace function relay.apply_install(
  p_user_id text, p_relay_host_id text, p_relay_device_id text, p_req_id text, p_new_hash text, p_expected_hash text,
  p_mode text, p_basis jsonb, p_direct_auth_id text)
returns relay_v1.install_credential_result
language plpgsql
as $$
declare
  v_result relay_v1.install_credential_result;
  v_device relay.device;
  v_invite relay.invite;
  v_direct relay.direct_authorization;
  v_open text[];
  v_now timestamptz;
begin
  select d.* into v_device from relay.device d
  where d.user_id = p_user_id and d.relay_host_id = p_relay_host_id and d.relay_device_id = p_relay_device_id
  for update;
  v_open := relay.lock_open_invites(p_user_id, p_relay_host_id, p_relay_device_id);
  select a.* into v_direct from relay.direct_authorization a
  where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id and a.direct_auth_id = p_direct_auth_id
  for update;
  v_now := relay.now();

  v_result := relay.committed_install(p_user_id, p_relay_host_id, p_relay_device_id, p_req_id);
  if v_result.outcome = 'committed' then
    return v_result;
  end if;
  v_result := null;
  if p_mode = 'relay-basis' then
    select i.* into v_invite from relay.invite i
    where i.token_hash = p_basis ->> 'token_hash' and i.token_hash = any(v_open)
      and i.reserved_by = p_basis ->> 'conn_id';
    if relay.invite_state(v_invite, v_now) is distinct from 'reserved' then
      v_result.outcome := 'invalid_relay_basis';
      return v_result;
    end if;
  elsif not relay.claim_direct_authorization(
    v_direct, p_user_id, p_relay_host_id, p_relay_device_id, p_direct_auth_id, v_now) then
    v_result.outcome := 'invalid_direct_authorization';
    return v_result;
  end if;
  if p_expected_hash <> coalesce(v_device.current_hash, '') then
    v_result.outcome := 'current_hash_mismatch';
    return v_result;
  end if;

  v_device := relay.rotate_device(v_device, p_user_id, p_relay_host_id, p_relay_device_id, p_new_hash, v_now);
  if p_mode = 'relay-basis' then
    update relay.invite i set consumed_at = v_now where i.token_hash = v_invite.token_hash;
  else
    update relay.direct_authorization a set used_at = v_now
    where a.user_id = p_user_id and a.relay_host_id = p_relay_host_id and a.direct_auth_id = p_direct_auth_id;
    perform relay.invalidate_invites(v_open, v_now);
  end if;
  insert into relay.install_result (user_id, relay_host_id, relay_device_id, req_id, authorization_mode,
    current_version, resume_expires_at, grace_expires_at, committed_at)
  values (p_user_id, p_relay_host_id, p_relay_device_id, p_req_id, p_mode,
    v_device.version, v_device.resume_expires_at, v_device.grace_expires_at, v_now);
  return relay.committed_install(p_user_id, p_relay_host_id, p_relay_device_id, p_req_id);
end
$$;
--! EndIncluded credentials/apply_install.sql
--! Included credentials/install_credential.sql
-- A host vouches for a device's new resume token: by a live invite connection (relay-basis), or because it authenticated
-- the device itself (authenticated-direct).
-- Caller: a cell. `basis`: {"conn_id", "token_hash"} of the invite connection that the cell holds open under the same control
-- generation, null if it holds none. Locks: apply_install. Outcomes: apply_install.
-- Idempotent per (user, host, device, req_id): a committed install answers the same for ever after, whatever else the
-- replay says. Every refusal leaves install_status `not_found`, and the same req_id may try again.
-- A race that only one can win (a device's first install, a direct authorization's first sight) shows as a unique violation
-- to the other, which then finds the winner's result: at most three attempts, then the error goes to the caller, who may
-- repeat the same req_id.
create or replace function relay_v1.install_credential(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, req_id text, relay_device_id text,
  new_token_hash text, authorization_mode text, expected_current_hash text default null, basis jsonb default null,
  direct_auth_id text default null)
returns relay_v1.install_credential_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.install_credential_result;
begin
  if not relay.is_incarnation(install_credential.cell_id, install_credential.incarnation) then
    v_result.outcome := 'stale_cell_incarnation';
    return v_result;
  end if;
  if install_credential.authorization_mode not in ('relay-basis', 'authenticated-direct') then
    perform relay.misuse('authorization_mode is relay-basis or authenticated-direct');
  end if;
  for v_attempt in 1..3 loop
    begin
      return relay.apply_install(
        install_credential.user_id, install_credential.relay_host_id, install_credential.relay_device_id,
        install_credential.req_id, install_credential.new_token_hash, install_credential.expected_current_hash,
        install_credential.authorization_mode, install_credential.basis, install_credential.direct_auth_id);
    exception when unique_violation or deadlock_detected or lock_not_available or serialization_failure then
      if v_attempt = 3 then
        raise;
      end if;
    end;
  end loop;
end
$$;
comment on function relay_v1.install_credential(text, text, text, uuid, text, text, text, text, text, jsonb, text) is
  'Makes a token the current one of a device, once per req_id; committed, or why not';
--! EndIncluded credentials/install_credential.sql
--! Included credentials/install_status.sql
-- Did this install commit? Answers what install_credential answered, also long after the control that asked is gone.
-- Caller: a cell. Locks: none. Outcomes: committed, not_found (never asked, refused, or failed: the same req_id may try again).
create or replace function relay_v1.install_status(
  user_id text, relay_host_id text, relay_device_id text, req_id text)
returns relay_v1.install_credential_result
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
begin
  return relay.committed_install(
    install_status.user_id, install_status.relay_host_id, install_status.relay_device_id, install_status.req_id);
end
$$;
comment on function relay_v1.install_status(text, text, text, text) is
  'What install_credential answered for this req_id if it committed, else not_found';
--! EndIncluded credentials/install_status.sql
--! Included credentials/apply_confirm.sql
-- One attempt of confirm_resume: lock, look, decide, write.
-- Caller: confirm_resume. Locks: the device.
--
-- First match wins; everything is looked at after the lock. p_relay_device_id and p_version are null without a basis.
-- | outcome                       | when                                                      | writes                      |
-- |-------------------------------|-----------------------------------------------------------|-----------------------------|
-- | confirmation_tuple_mismatch   | this req_id was confirmed for another connection or token | nothing                     |
-- | confirmed (replay)            | this req_id was confirmed for this connection             | nothing: its first result   |
-- | confirmation_not_active       | no basis                                                  | nothing                     |
-- | credential_not_found          | no such device                                            | nothing                     |
-- | reject-revoked, -expired, -retired | resume_state                                         | nothing                     |
-- | confirmed, renewed            | the version is the current one                            | 30 d from now, the result   |
-- | confirmed, not renewed        | the version is in grace                                   | the result                  |
create or replace function relay.apply_confirm(
  p_user_id text, p_relay_host_id text, p_req_id text, p_basis_conn_id text, p_relay_device_id text, p_version bigint)
returns relay_v1.confirm_resume_result
language plpgsql
as $$
declare
  v_result relay_v1.confirm_resume_result;
  v_device relay.device;
  v_first relay.confirm_result;
  v_state text;
  v_now timestamptz;
begin
  select d.* into v_device from relay.device d
  where d.user_id = p_user_id and d.relay_host_id = p_relay_host_id and d.relay_device_id = p_relay_device_id
  for update;
  v_now := relay.now();
  select r.* into v_first from relay.confirm_result r
  where r.user_id = p_user_id and r.relay_host_id = p_relay_host_id and r.req_id = p_req_id;
  v_state := relay.resume_state(v_device, p_version, v_now);
  v_result.outcome := case
    when v_first.basis_conn_id <> p_basis_conn_id
      or v_first.relay_device_id <> p_relay_device_id
      or v_first.basis_version <> p_version then 'confirmation_tuple_mismatch'
    when v_first.req_id is not null then 'confirmed'
    when p_relay_device_id is null then 'confirmation_not_active'
    when v_device.user_id is null then 'credential_not_found'
    when v_state in ('current', 'grace') then 'confirmed'
    else 'reject-' || v_state
  end;
  if v_result.outcome <> 'confirmed' then
    return v_result;
  end if;

  if v_first.req_id is null then
    if v_state = 'current' then
      v_device.resume_expires_at := v_now + relay.span_of('resumeTtlMs');
      update relay.device d set resume_expires_at = v_device.resume_expires_at
      where d.user_id = p_user_id and d.relay_host_id = p_relay_host_id and d.relay_device_id = p_relay_device_id;
    end if;
    insert into relay.confirm_result (user_id, relay_host_id, req_id, basis_conn_id, relay_device_id, basis_version,
      current_version, accepted_as, resume_expires_at, grace_expires_at, confirmed_at)
    values (p_user_id, p_relay_host_id, p_req_id, p_basis_conn_id, p_relay_device_id, p_version,
      v_device.version, v_state, v_device.resume_expires_at, relay.open_grace(v_device, v_now), v_now)
    returning * into v_first;
  end if;
  v_result.current_version := v_first.current_version;
  v_result.accepted_as := v_first.accepted_as;
  v_result.renewed := v_first.accepted_as = 'current';
  v_result.resume_expires_at := v_first.resume_expires_at;
  v_result.grace_expires_at := v_first.grace_expires_at;
  return v_result;
end
$$;
--! EndIncluded credentials/apply_confirm.sql
--! Included credentials/confirm_resume.sql
-- A host confirms that a phone which resumed is the device it knows: the phone's current token lives 30 d from now.
-- Caller: a cell. `basis`: {"relay_device_id", "credential_version"} of the resume connection `basis_conn_id` that the cell
-- holds open under the same control generation and within 30 s of attach; null if there is none.
-- Locks, outcomes: apply_confirm; also stale_cell_incarnation. Idempotent per (user, host, req_id).
-- At most three attempts, as install_credential.
create or replace function relay_v1.confirm_resume(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, req_id text, basis_conn_id text, basis jsonb default null)
returns relay_v1.confirm_resume_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.confirm_resume_result;
begin
  if not relay.is_incarnation(confirm_resume.cell_id, confirm_resume.incarnation) then
    v_result.outcome := 'stale_cell_incarnation';
    return v_result;
  end if;
  for v_attempt in 1..3 loop
    begin
      return relay.apply_confirm(
        confirm_resume.user_id, confirm_resume.relay_host_id, confirm_resume.req_id, confirm_resume.basis_conn_id,
        confirm_resume.basis ->> 'relay_device_id', (confirm_resume.basis ->> 'credential_version')::bigint);
    exception when unique_violation or deadlock_detected or lock_not_available or serialization_failure then
      if v_attempt = 3 then
        raise;
      end if;
    end;
  end loop;
end
$$;
comment on function relay_v1.confirm_resume(text, text, text, uuid, text, text, jsonb) is
  'Renews the current token of a resumed device for 30 d, once per req_id; confirmed, or why not';
--! EndIncluded credentials/confirm_resume.sql
--! Included credentials/revoke_device.sql
-- A host takes a device's access away: its resume tokens, the one in grace too, and its open invites.
-- Caller: a cell. Locks: the device, its open invites (by token_hash).
-- | outcome                | when                                                                              |
-- |------------------------|-----------------------------------------------------------------------------------|
-- | stale_cell_incarnation | the caller is not the cell's process of now                                       |
-- | revoked                | the device was known, or had an open invite; also if it was revoked before        |
-- | credential_not_found   | otherwise                                                                         |
-- A later install brings the device back, with a new token alone. A first install that is under way commits before or
-- after: two orders, no mixture.
create or replace function relay_v1.revoke_device(
  user_id text, relay_host_id text, cell_id text, incarnation uuid, relay_device_id text)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz;
  v_known boolean;
  v_invites text[];
begin
  if not relay.is_incarnation(revoke_device.cell_id, revoke_device.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  perform 1 from relay.device d
  where d.user_id = revoke_device.user_id and d.relay_host_id = revoke_device.relay_host_id
    and d.relay_device_id = revoke_device.relay_device_id
  for update;
  v_known := found;
  v_invites := relay.lock_open_invites(
    revoke_device.user_id, revoke_device.relay_host_id, revoke_device.relay_device_id);
  v_now := relay.now();
  update relay.device d set revoked_at = v_now
  where d.user_id = revoke_device.user_id and d.relay_host_id = revoke_device.relay_host_id
    and d.relay_device_id = revoke_device.relay_device_id and d.revoked_at is null;
  perform relay.invalidate_invites(v_invites, v_now);
  if v_known or cardinality(v_invites) > 0 then
    return 'revoked';
  end if;
  return 'credential_not_found';
end
$$;
comment on function relay_v1.revoke_device(text, text, text, uuid, text) is
  'Ends the resume tokens and invites of a device; revoked, credential_not_found or stale_cell_incarnation';
--! EndIncluded credentials/revoke_device.sql
--! Included credentials/sweep_credentials.sql
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
--! EndIncluded credentials/sweep_credentials.sql
-- credentials: end

--! Included rules/assignment_is_monotonic.sql
-- Refuses an assignment whose epoch falls, or whose cell changes without a higher epoch (P1, P2). SQLSTATE RL002.
-- Caller: trigger, whose condition is the rule. Locks: none.
create or replace function relay.assignment_is_monotonic()
returns trigger
language plpgsql
set search_path = relay, pg_temp
as $$
begin
  raise exception using errcode = 'RL002',
    message = format('epoch %s on %s may not follow epoch %s on %s', new.epoch, new.cell_id, old.epoch, old.cell_id),
    hint = 'An epoch never falls, and a host changes its cell only together with a higher epoch.';
end
$$;
--! EndIncluded rules/assignment_is_monotonic.sql
--! Included rules/assignment_is_kept.sql
-- Refuses to delete assignments: a host that came back would start again at epoch 1, which was used before (P1).
-- SQLSTATE RL003. Caller: trigger on delete and truncate. Locks: none.
create or replace function relay.assignment_is_kept()
returns trigger
language plpgsql
set search_path = relay, pg_temp
as $$
begin
  raise exception using errcode = 'RL003', message = format('%s of assignments is refused', lower(tg_op)),
    hint = 'The epoch of a host must never repeat.';
end
$$;
--! EndIncluded rules/assignment_is_kept.sql
--! Included rules/cell_change_takes_latch.sql
-- Takes the latch of a cell that is being changed, so that a grant which has read the old row is committed first and
-- one that waits reads the new row. A function that changes a cell holds it already; this is for statements by hand.
-- Caller: trigger on update and delete. Locks: the row of the cell (Postgres, before), then its latch, exclusive.
create or replace function relay.cell_change_takes_latch()
returns trigger
language plpgsql
set search_path = relay, pg_temp
as $$
begin
  perform pg_advisory_xact_lock(relay.latch_space(), old.latch);
  return case tg_op when 'DELETE' then old else new end;
end
$$;
--! EndIncluded rules/cell_change_takes_latch.sql
create trigger assignment_is_monotonic
  before update on relay.assignment for each row
  when (new.epoch < old.epoch
    or (new.cell_id, new.user_id, new.relay_host_id) is distinct from (old.cell_id, old.user_id, old.relay_host_id)
      and new.epoch <= old.epoch)
  execute function relay.assignment_is_monotonic();
create trigger assignment_is_kept
  before delete or truncate on relay.assignment for each statement
  execute function relay.assignment_is_kept();
create trigger cell_change_takes_latch
  before update or delete on relay.cell for each row
  execute function relay.cell_change_takes_latch();

create type relay.ask as (
  user_id text, relay_host_id text, preferred_region text, requested_by text, epoch_floor bigint);
comment on type relay.ask is 'Who asks for which host to be placed, and how';
create type relay.decision as (
  action text, outcome text, rule text, cause text, cell_id text, cell_url text, region text, latch int, epoch bigint,
  lease_expires_at timestamptz, free_units int, forced boolean, target_region text, excluded text, stamp_due boolean);
comment on type relay.decision is 'What the table of assign says: keep and refuse need no write; grant, place and move do';
create type relay.target as (cell_id text, latch int, url text, region text, free_units int);
comment on type relay.target is 'A cell that can take a host, and how many units it has free';
create type relay_v1.assign_result as (
  outcome text, rule text, cause text, cell_id text, cell_url text, region text, epoch bigint,
  lease_expires_at timestamptz, moved boolean, from_cell_id text, verdict_wanted boolean, decided_at timestamptz);
comment on type relay_v1.assign_result is 'Answer of assign';
create type relay_v1.resolve_result as (
  outcome text, user_id text, cell_id text, cell_url text, region text, epoch bigint, lease_expires_at timestamptz);
comment on type relay_v1.resolve_result is 'Answer of resolve';
create type relay_v1.activate_control_result as (outcome text, lease_expires_at timestamptz);
comment on type relay_v1.activate_control_result is 'Answer of activate_control';
create type relay_v1.cell_orders_result as (
  admission text, admit_mode text, flags jsonb, flags_generation bigint, drain jsonb);
comment on type relay_v1.cell_orders_result is 'Answer of cell_orders';

--! Included rules/misuse.sql
-- Raises a misuse: a mistake of the calling program, never an answer to a host. SQLSTATE RL001.
-- Caller: public functions on a bad argument or a wrong isolation level. Locks: none.
create or replace function relay.misuse(p_message text)
returns void
language plpgsql
as $$
begin
  raise exception using errcode = 'RL001', message = p_message;
end
$$;
--! EndIncluded rules/misuse.sql
--! Included rules/audit.sql
-- Writes down a call of an operator function and hands its outcome back, so that a function ends with it.
-- Caller: operator functions. Locks: none. Outcome: p_outcome.
create or replace function relay.audit(p_function text, p_arguments jsonb, p_outcome text)
returns text
language plpgsql
as $$
begin
  insert into relay.audit (who, function, arguments_digest, outcome, at)
  values (session_user, p_function, encode(sha256(convert_to(p_arguments::text, 'utf8')), 'hex'), p_outcome, relay.now());
  return p_outcome;
end
$$;
--! EndIncluded rules/audit.sql
--! Included rules/may_operate.sql
-- Whether who logged in may change cells. The session's own role is asked: inside a definer function the current one
-- is the owner. Caller: operator functions, which answer `forbidden`; a raise would roll back the audit row. Locks: none.
create or replace function relay.may_operate()
returns boolean
language sql stable
as $$ select pg_has_role(session_user, 'relay_operator', 'member') $$;
--! EndIncluded rules/may_operate.sql

--! Included cells/ring.sql
-- Writes a change of a cell's state and rings the doorbell, channel relay_doorbell. The payload is a hint, never data:
-- readers look at their cursor. Never called in a host's transaction: NOTIFY takes one lock for the whole database
-- at commit, ×2–4 at 8–32 writers.
-- Caller: functions that change a cell. Locks: none.
create or replace function relay.ring(p_kind text, p_cell_id text, p_detail jsonb, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  insert into relay.change (kind, to_cell, detail, at) values (p_kind, p_cell_id, p_detail, p_now);
  perform pg_notify('relay_doorbell', p_cell_id);
end
$$;
--! EndIncluded cells/ring.sql
--! Included cells/cell_load.sql
-- What a cell carries: what its last heartbeat said, plus the unexpired leases which that cannot show yet (no process,
-- another process, or a higher watermark). One statement, because two around a heartbeat would count a host twice or
-- not at all. No row if the cell was never heard.
-- A set of one row, so that the planner takes it into the query that asks: a call a candidate costs ×2.
-- Four ranges of one index: a join or an `or` would walk all leases of the cell.
-- Caller: load, choose_target, target_room, explain_candidates, views. Locks: none.
create or replace function relay.cell_load(p_cell_id text, p_now timestamptz)
returns table (load int)
language sql stable
as $$
  select r.enforced_units
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation is null and l.expires_at > p_now)
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation = r.incarnation and l.inclusion_watermark > r.inclusion_watermark
        and l.expires_at > p_now)
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation < r.incarnation and l.expires_at > p_now)
    + (select coalesce(sum(l.units), 0)::int from relay.lease l
      where l.cell_id = r.cell_id and l.incarnation > r.incarnation and l.expires_at > p_now)
  from relay.cell_runtime r
  where r.cell_id = p_cell_id
$$;
--! EndIncluded cells/cell_load.sql
--! Included cells/load.sql
-- What a cell carries (cell_load), as a number; null if the cell was never heard.
-- Caller: decide_assign. Locks: none.
create or replace function relay.load(p_cell_id text, p_now timestamptz)
returns int
language plpgsql stable
as $$
begin
  return (select n.load from relay.cell_load(p_cell_id, p_now) n);
end
$$;
--! EndIncluded cells/load.sql
--! Included cells/hearing.sql
-- Whether a silence may be judged: some cell was heard in the last 20 s, and cells have been heard for 60 s since all
-- were silent. After an outage of the database nobody is judged by the silence that the outage made (V5).
-- Caller: decide_assign. Locks: none.
create or replace function relay.hearing(p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return coalesce(
    exists (select from relay.cell_runtime r where r.heard_at > p_now - relay.span_of('hearingWindowMs'))
      and p_now - (select s.hearing_since from relay.setting s) >= relay.span_of('hearingSettleMs'), false);
end
$$;
--! EndIncluded cells/hearing.sql
--! Included cells/is_incarnation.sql
-- Whether this process is the one the cell's last heartbeat came from.
-- Caller: functions that a cell calls; they answer stale_cell_incarnation if not. Locks: none.
create or replace function relay.is_incarnation(p_cell_id text, p_incarnation uuid)
returns boolean
language plpgsql stable
as $$
begin
  return exists (select from relay.cell_runtime r where r.cell_id = p_cell_id and r.incarnation = p_incarnation);
end
$$;
--! EndIncluded cells/is_incarnation.sql
--! Included cells/heartbeat_refusal.sql
-- The first check that a heartbeat fails, or null. The order is the order of the checks that operators know.
-- Caller: heartbeat, which holds the runtime row. Locks: none.
-- Outcomes: cell_not_found, cell_origin_mismatch, cell_region_mismatch, stale_cell_incarnation (another start of the same
-- process, or a process that did not start later), cell_connection_telemetry_mismatch (a capped cell whose counts are
-- incomplete, do not add up or name another limit), cell_connection_limit_not_configured (an uncapped one that sends
-- such counts), stale_connection_snapshot (a lower watermark).
create or replace function relay.heartbeat_refusal(
  p_cell relay.cell, p_runtime relay.cell_runtime, p_url text, p_region text, p_incarnation uuid,
  p_started_at timestamptz, p_load jsonb)
returns text
language plpgsql immutable
as $$
declare
  c_counts constant text[] := array['total_connections', 'in_flight_connections', 'reserved_units', 'hard_cap', 'unobserved_bound'];
begin
  if p_cell.cell_id is null then
    return 'cell_not_found';
  elsif p_cell.url <> p_url then
    return 'cell_origin_mismatch';
  elsif p_cell.region <> p_region then
    return 'cell_region_mismatch';
  elsif p_runtime.incarnation = p_incarnation and p_runtime.started_at <> p_started_at
    or p_runtime.incarnation <> p_incarnation and p_runtime.started_at >= p_started_at then
    return 'stale_cell_incarnation';
  elsif p_cell.connection_hard_cap is null and p_load ?| c_counts then
    return 'cell_connection_limit_not_configured';
  elsif p_cell.connection_hard_cap is not null and not coalesce(
    (p_load ->> 'total_connections')::int + (p_load ->> 'in_flight_connections')::int + (p_load ->> 'reserved_units')::int
      = (p_load ->> 'enforced_units')::int
    and (p_load ->> 'hard_cap')::int = p_cell.connection_hard_cap
    and (p_load ->> 'unobserved_bound')::int = p_cell.connection_unobserved_bound, false) then
    return 'cell_connection_telemetry_mismatch';
  elsif p_runtime.incarnation = p_incarnation
    and (p_load ->> 'inclusion_watermark')::bigint < p_runtime.inclusion_watermark then
    return 'stale_connection_snapshot';
  end if;
  return null;
end
$$;
--! EndIncluded cells/heartbeat_refusal.sql
--! Included cells/note_outage.sql
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
--! EndIncluded cells/note_outage.sql
--! Included cells/heartbeat.sql
-- A cell says that it lives and what it carries.
-- Caller: cell, every 15 s, and after a failure again after 1, 2, 4 s. Locks: cell_runtime (its own row), then setting
-- after an outage. Reads the cell without locking it; touches no lease.
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
    inclusion_watermark, total_connections, in_flight_connections, reserved_units)
  values (heartbeat.cell_id, heartbeat.incarnation, heartbeat.started_at, heartbeat.ready, v_now,
    (heartbeat.load ->> 'enforced_units')::int, (heartbeat.load ->> 'inclusion_watermark')::bigint,
    (heartbeat.load ->> 'total_connections')::int, (heartbeat.load ->> 'in_flight_connections')::int,
    (heartbeat.load ->> 'reserved_units')::int)
  on conflict on constraint cell_runtime_pkey do update
  set incarnation = excluded.incarnation, started_at = excluded.started_at, ready = excluded.ready,
    heard_at = excluded.heard_at, enforced_units = excluded.enforced_units,
    inclusion_watermark = excluded.inclusion_watermark, total_connections = excluded.total_connections,
    in_flight_connections = excluded.in_flight_connections, reserved_units = excluded.reserved_units
  -- two processes may both be the first of a cell: the second then meets a row that it did not lock and check
  where r.incarnation = excluded.incarnation or r.started_at < excluded.started_at;
  if not found then
    return 'stale_cell_incarnation';
  end if;
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
--! Included cells/register_cell.sql
-- Registers a cell, or changes where it is and what it may carry. The admission of a registered cell stays as it is:
-- a fleet that is started anew must not undo what an operator decided.
-- Caller: operator, or the launcher of a local fleet. Locks: the row of the cell, then its latch, exclusive.
-- Outcomes: ok, forbidden.
create or replace function relay_v1.register_cell(
  cell_id text, url text, region text, capacity_units int, connection_hard_cap int default null,
  connection_unobserved_bound int default null, admission text default 'general')
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_arguments jsonb := jsonb_build_array(register_cell.cell_id, register_cell.url, register_cell.region,
    register_cell.capacity_units, register_cell.connection_hard_cap, register_cell.connection_unobserved_bound,
    register_cell.admission);
  v_now timestamptz;
begin
  if not relay.may_operate() then
    return relay.audit('register_cell', v_arguments, 'forbidden');
  end if;
  -- the row first, then the latch, as a statement by hand takes them
  perform pg_advisory_xact_lock(relay.latch_space(), c.latch)
  from (select x.latch from relay.cell x where x.cell_id = register_cell.cell_id for update) c;
  v_now := relay.now();
  insert into relay.cell as c (cell_id, url, region, capacity_units, connection_hard_cap, connection_unobserved_bound,
    admission, registered_at)
  values (register_cell.cell_id, register_cell.url, register_cell.region, register_cell.capacity_units,
    register_cell.connection_hard_cap, register_cell.connection_unobserved_bound, register_cell.admission, v_now)
  on conflict on constraint cell_pkey do update
  set url = excluded.url, region = excluded.region, capacity_units = excluded.capacity_units,
    connection_hard_cap = excluded.connection_hard_cap,
    connection_unobserved_bound = excluded.connection_unobserved_bound
  where (c.url, c.region, c.capacity_units, c.connection_hard_cap, c.connection_unobserved_bound) is distinct from
    (excluded.url, excluded.region, excluded.capacity_units, excluded.connection_hard_cap,
      excluded.connection_unobserved_bound);
  if found then
    perform relay.ring('cell_registered', register_cell.cell_id,
      jsonb_build_object('url', register_cell.url, 'region', register_cell.region), v_now);
  end if;
  return relay.audit('register_cell', v_arguments, 'ok');
end
$$;
comment on function relay_v1.register_cell(text, text, text, int, int, int, text) is
  'Registers a cell or changes its origin, region and capacity; its admission stays. ok or forbidden';
--! EndIncluded cells/register_cell.sql
--! Included cells/cells.sql
-- All cells with their last heartbeat. Caller: director, on a doorbell and at a poll. Locks: none.
create or replace function relay_v1.cells()
returns table (
  cell_id text, url text, region text, admission text, admit_mode text, capacity_units int, connection_hard_cap int,
  connection_unobserved_bound int, incarnation uuid, started_at timestamptz, ready boolean, heard_age_ms bigint,
  enforced_units int, draining boolean)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.url, c.region, c.admission, c.admit_mode, c.capacity_units, c.connection_hard_cap,
    c.connection_unobserved_bound, r.incarnation, r.started_at, r.ready,
    (extract(epoch from v_now - r.heard_at) * 1000)::bigint, r.enforced_units,
    coalesce(c.drain_incarnation = r.incarnation, false)
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  order by c.cell_id;
end
$$;
comment on function relay_v1.cells() is 'All cells with their last heartbeat';
--! EndIncluded cells/cells.sql
--! Included cells/regions.sql
-- The regions that take hosts now, each with the origins of up to two of its cells for a desktop to measure.
-- Caller: director, `GET /v1/regions`. Locks: none.
create or replace function relay_v1.regions()
returns table (region text, probe_origins text[])
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.region, (array_agg(distinct c.url order by c.url))[1:2]
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  where relay.target_rejection(c, r, v_now) is null
  group by c.region
  order by c.region;
end
$$;
comment on function relay_v1.regions() is 'Regions that take hosts now, each with one or two origins to measure';
--! EndIncluded cells/regions.sql
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
      'grace_ms', c.drain_grace_ms, 'pace_ms', c.drain_pace_ms, 'incarnation', c.drain_incarnation) end
  from relay.cell c
  where c.cell_id = cell_orders.cell_id;
end
$$;
comment on function relay_v1.cell_orders(text, uuid) is 'What the operators want of a cell: admission, mode, flags, drain order';
--! EndIncluded cells/cell_orders.sql

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
    -- a reserve cell that runs on the database says so in its effective row; there is none yet
    when p_cell.admit_mode <> 'db' then 'reserve'
    when (p_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')) is not true then 'unheard'
    when not p_runtime.ready then 'not_ready'
    when p_cell.drain_incarnation = p_runtime.incarnation then 'draining'
  end
$$;
--! EndIncluded placement/target_rejection.sql
--! Included placement/choose_target.sql
-- A cell for a host: two candidates at random, the one with the lower load ratio wins; all are counted only if both are
-- full (counting 30 a move costs 3–5×). The preferred region if it has any candidate, else any. All null: none.
-- Caller: apply_assign. Locks: none; attempt_assign looks again under the latch.
create or replace function relay.choose_target(p_region text, p_excluded text[], p_now timestamptz)
returns relay.target
language plpgsql stable
as $$
declare
  v_target relay.target;
  v_region text;
  v_sample int;
begin
  foreach v_region in array case when p_region is null then array[null] else array[p_region, null] end loop
    foreach v_sample in array array[2, null]::int[] loop
      select s.cell_id, s.latch, s.url, s.region, s.unit_limit - n.load
      into v_target
      from (
        select c.cell_id, c.latch, c.url, c.region, c.unit_limit
        from relay.cell c
        join relay.cell_runtime r on r.cell_id = c.cell_id
        where relay.target_rejection(c, r, p_now) is null
          and (v_region is null or c.region = v_region)
          and c.cell_id <> all (p_excluded)
        order by random()
        limit v_sample
      ) s
      -- `offset 0`: or else the load is counted again for the filter, the order and the answer
      cross join lateral (select l.load from relay.cell_load(s.cell_id, p_now) l offset 0) n
      where n.load < s.unit_limit
      order by n.load::float8 / s.unit_limit, s.latch
      limit 1;
      if found then
        return v_target;
      end if;
    end loop;
  end loop;
  return null;
end
$$;
--! EndIncluded placement/choose_target.sql
--! Included placement/target_room.sql
-- How many units a cell has free for a host that is to be placed there, null if it is no target (any more).
-- Caller: attempt_assign, which holds the latch of the cell. Locks: none.
create or replace function relay.target_room(p_cell_id text, p_now timestamptz)
returns int
language plpgsql stable
as $$
begin
  return (
    select c.unit_limit - n.load
    from relay.cell c
    join relay.cell_runtime r on r.cell_id = c.cell_id
    cross join lateral relay.cell_load(c.cell_id, p_now) n
    where c.cell_id = p_cell_id and relay.target_rejection(c, r, p_now) is null);
end
$$;
--! EndIncluded placement/target_room.sql
--! Included placement/mint_epoch.sql
-- The epoch of a host that is placed or moved: above its row, above every epoch that the caller knows (the floor), and
-- above all that may have been given before a failover lost commits (P1). A new host starts at 1.
-- Without a floor while a cell is in reserve mode: 1000 above, past anything booked and not yet recorded.
-- Null on a timeline for which no heartbeat has raised the base yet: the caller answers busy.
-- Caller: every function that places or moves a host. Locks: none.
create or replace function relay.mint_epoch(p_row_epoch bigint, p_floor bigint)
returns bigint
language plpgsql stable
as $$
declare
  v_timeline bigint;
  v_base bigint;
  v_blind boolean;
begin
  select s.timeline, s.epoch_base, p_floor is null and exists (select from relay.cell c where c.admit_mode = 'reserve')
  into v_timeline, v_base, v_blind
  from relay.setting s;
  if v_timeline <> relay.timeline() then
    return null;
  end if;
  return greatest(p_row_epoch, p_floor, v_base) + case when v_blind then relay.limit_of('epochJump') else 1 end;
end
$$;
--! EndIncluded placement/mint_epoch.sql
--! Included placement/unavailable_cause.sql
-- Why a home that is not live is not (03, rule 14). Caller: decide_assign. Locks: none.
-- Outcomes: booting, draining, unheard, not_ready.
create or replace function relay.unavailable_cause(p_cell relay.cell, p_runtime relay.cell_runtime, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_cell.cell_id is null or p_runtime.cell_id is null then 'booting'
    when p_cell.admission = 'existing-only' then 'draining'
    when p_cell.drain_incarnation = p_runtime.incarnation
      and (p_now - p_cell.roll_isolated_at < relay.span_of('rollStampTtlMs')) is not true then 'draining'
    when p_runtime.heard_at <= p_now - relay.span_of('heartbeatTtlMs') then 'unheard'
    else 'not_ready'
  end
$$;
--! EndIncluded placement/unavailable_cause.sql
--! Included placement/is_dormant.sql
-- Whether a host that holds no lease has shown no activity for 24 h, while silences may be judged (03, rule 2).
-- Activity is the stamp, or the end of its latest lease, expired ones too.
-- Caller: decide_assign. Locks: none.
create or replace function relay.is_dormant(
  p_user_id text, p_relay_host_id text, p_last_activity_at timestamptz, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  -- the stamp alone answers for nearly every host, so that the sticky path does not read the leases
  if p_last_activity_at > p_now - relay.span_of('dormantTtlMs') then
    return false;
  end if;
  return relay.hearing(p_now) and not exists (
    select from relay.lease l
    where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id
      and l.expires_at > p_now - relay.span_of('dormantTtlMs'));
end
$$;
--! EndIncluded placement/is_dormant.sql
--! Included placement/decide_assign.sql
-- What is to be done about a host that is asked for: the table of 03-decisions.md, assign, from top to bottom. Reads,
-- and neither writes nor locks. The first row that matches and whose *who* includes the caller wins.
-- Actions: keep and refuse are answers; grant (a lease on the home), place and move are for attempt_assign to write.
-- Caller: assign unlocked, attempt_assign under its locks, explain_assign. Locks: none.
create or replace function relay.decide_assign(p_ask relay.ask, p_now timestamptz)
returns relay.decision
language plpgsql stable
as $$
declare
  v record;
  v_d relay.decision;
  v_holds boolean;
  v_is_host constant boolean := p_ask.requested_by = 'host';
begin
  -- `offset 0` keeps four look-ups by key four look-ups: joins of such small tables cost ×2
  select a.cell_id, a.epoch, a.last_activity_at, l.expires_at,
    l.epoch = a.epoch and l.state <> 'retiring' and l.expires_at > p_now as holds,
    c.url, c.region, c.latch, c.admission, c.unit_limit, c.connection_hard_cap,
    c.cell_id = r.cell_id and r.ready and r.heard_at > p_now - relay.span_of('heartbeatTtlMs') as live, r.heard_at,
    case when a.preferred_region_at > p_now - relay.span_of('regionPreferenceTtlMs')
      then a.preferred_region end as preference
  into v
  from relay.assignment a
  left join lateral (select x.* from relay.lease x where x.user_id = p_ask.user_id
    and x.relay_host_id = p_ask.relay_host_id and x.cell_id = a.cell_id offset 0) l on true
  left join lateral (select x.* from relay.cell x where x.cell_id = a.cell_id offset 0) c on true
  left join lateral (select x.* from relay.cell_runtime x where x.cell_id = a.cell_id offset 0) r on true
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id;

  -- 0 behind: needs the floors of reserve mode
  -- 1 new
  if not found and p_ask.requested_by in ('host', 'resolve', 'invite') then
    v_d.action := 'place'; v_d.outcome := 'would_place'; v_d.rule := 'new';
    v_d.target_region := p_ask.preferred_region;
    return v_d;
  end if;
  v_d.cell_id := v.cell_id; v_d.cell_url := v.url; v_d.region := v.region; v_d.latch := v.latch; v_d.epoch := v.epoch;
  v_d.target_region := coalesce(p_ask.preferred_region, v.preference, v.region);
  v_holds := coalesce(v.holds, false);
  -- 2 dormant
  if v_is_host and not v_holds and relay.is_dormant(p_ask.user_id, p_ask.relay_host_id, v.last_activity_at, p_now) then
    v_d.action := 'move'; v_d.outcome := 'would_place'; v_d.rule := 'dormant'; v_d.forced := true;
  -- 3 stranded, 4 roll-isolated, 5 draining-home: need migrations; 6 reserve-pin: needs reserve mode
  elsif v.live then
    if not v_holds then
      v_d.free_units := v.unit_limit - relay.load(v.cell_id, p_now);
    end if;
    -- 7 sticky
    if v_holds or v_d.free_units > 0 then
      v_d.action := case when v_holds or not v_is_host then 'keep' else 'grant' end;
      v_d.outcome := 'granted'; v_d.rule := 'sticky';
      v_d.lease_expires_at := case when v_holds then v.expires_at else p_now + relay.span_of('grantLeaseMs') end;
      v_d.stamp_due := v_is_host and v_holds
        and v.last_activity_at <= p_now - relay.span_of('activityStampIntervalMs');
    -- 8 headroom: no lease is held, so none is active
    elsif v_is_host and v.admission = 'general' then
      v_d.action := 'move'; v_d.outcome := 'would_place'; v_d.rule := 'headroom'; v_d.forced := false;
      v_d.excluded := v.cell_id;
    -- 9 no-headroom
    else
      v_d.action := 'refuse'; v_d.outcome := 'no_headroom'; v_d.rule := 'no-headroom';
    end if;
  -- 10 roll-replaced: needs migrations
  -- 11 dead-uncapped
  elsif v_is_host and v.heard_at is not null and v.connection_hard_cap is null and relay.hearing(p_now) then
    v_d.action := 'move'; v_d.outcome := 'would_place'; v_d.rule := 'dead-uncapped'; v_d.forced := true;
    v_d.excluded := v.cell_id;
  -- 12 fenced: needs fences; 13 dead-reserve: needs reserve mode
  -- 14 home-unavailable
  else
    v_d.action := 'refuse'; v_d.outcome := 'unavailable'; v_d.rule := 'home-unavailable';
    select relay.unavailable_cause(c, r, p_now) into v_d.cause
    from (values (v.cell_id)) home (cell_id)
    left join relay.cell c on c.cell_id = home.cell_id
    left join relay.cell_runtime r on r.cell_id = home.cell_id;
  end if;
  return v_d;
end
$$;
--! EndIncluded placement/decide_assign.sql
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
  v_result.cause := p_decision.cause;
  if p_decision.outcome = 'granted' then
    v_result.cell_id := p_decision.cell_id;
    v_result.cell_url := p_decision.cell_url;
    v_result.region := p_decision.region;
    v_result.epoch := p_decision.epoch;
    v_result.lease_expires_at := p_decision.lease_expires_at;
  end if;
  v_result.moved := false;
  v_result.verdict_wanted := false;
  v_result.decided_at := p_now;
  return v_result;
end
$$;
--! EndIncluded placement/answer.sql
--! Included placement/stamp_activity.sql
-- Stamps that a host which keeps its lease was active, and the region it asks for; at most once a minute a host.
-- Never waits: a stamp that somebody else's lock prevents comes with the next ask.
-- Caller: assign, outside its lock. Locks: the host's row, skipped if locked.
create or replace function relay.stamp_activity(p_ask relay.ask, p_decision relay.decision, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  update relay.assignment a
  set last_activity_at = p_now,
    preferred_region = coalesce(p_ask.preferred_region, a.preferred_region),
    preferred_region_at = case when p_ask.preferred_region is null then a.preferred_region_at else p_now end
  from (
    select x.user_id, x.relay_host_id
    from relay.assignment x
    where x.user_id = p_ask.user_id and x.relay_host_id = p_ask.relay_host_id
      and x.cell_id = p_decision.cell_id and x.epoch = p_decision.epoch
    for no key update skip locked
  ) mine
  where a.user_id = mine.user_id and a.relay_host_id = mine.relay_host_id;
end
$$;
--! EndIncluded placement/stamp_activity.sql
--! Included placement/lock_host.sql
-- Locks the row of a host, or makes it if the host is new, and holds the decision to it.
-- Raises RL103 if the host is not (any more) as decided. Null: no epoch can be minted yet.
-- Caller: attempt_assign. Locks: the host's row, ≤ 500 ms.
create or replace function relay.lock_host(
  p_ask relay.ask, p_decision relay.decision, p_target relay.target, p_now timestamptz)
returns bigint
language plpgsql
as $$
declare
  v_cell_id text;
  v_epoch bigint;
begin
  if p_decision.action = 'place' then
    v_epoch := relay.mint_epoch(0, p_ask.epoch_floor);
    if v_epoch is null then
      return null;
    end if;
    insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at, unattached_since,
      preferred_region, preferred_region_at)
    values (p_ask.user_id, p_ask.relay_host_id, p_target.cell_id, v_epoch, p_now, p_now, p_ask.preferred_region,
      case when p_ask.preferred_region is not null then p_now end)
    on conflict do nothing;
    if not found then
      raise exception using errcode = 'RL103', message = 'the host is not new any more';
    end if;
    return v_epoch;
  end if;
  select a.cell_id, a.epoch into v_cell_id, v_epoch
  from relay.assignment a
  where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id
  for no key update;
  if (v_cell_id, v_epoch) is distinct from (p_decision.cell_id, p_decision.epoch) then
    raise exception using errcode = 'RL103', message = 'the host was moved meanwhile';
  end if;
  return v_epoch;
end
$$;
--! EndIncluded placement/lock_host.sql
--! Included placement/take_latches.sql
-- Takes the latches of a decision: of the cell that the lease lands on in the mode that its free units ask for, of the
-- home that is left shared; in ascending order, never upgraded. True if the lease's cell is latched shared.
-- The first target is waited for, ≤ 500 ms; a further one is only tried: RL102 if it is not free.
-- Caller: attempt_assign, after the host's row. Locks: latches of home and target.
create or replace function relay.take_latches(p_decision relay.decision, p_target relay.target, p_wait boolean)
returns boolean
language plpgsql
as $$
declare
  v_latch constant int := coalesce(p_target.latch, p_decision.latch);
  v_home constant int := nullif(p_decision.latch, v_latch);
  v_free constant int := coalesce(p_target.free_units, p_decision.free_units);
  v_shared constant boolean := v_free > relay.limit_of('exclusiveLatchBelowUnits');
begin
  if v_home < v_latch then
    perform pg_advisory_xact_lock_shared(relay.latch_space(), v_home);
  end if;
  if p_wait and v_shared then
    perform pg_advisory_xact_lock_shared(relay.latch_space(), v_latch);
  elsif p_wait then
    perform pg_advisory_xact_lock(relay.latch_space(), v_latch);
  elsif v_shared and not pg_try_advisory_xact_lock_shared(relay.latch_space(), v_latch)
    or not v_shared and not pg_try_advisory_xact_lock(relay.latch_space(), v_latch) then
    raise exception using errcode = 'RL102', message = 'the latch of a further target is not free';
  end if;
  if v_home > v_latch then
    perform pg_advisory_xact_lock_shared(relay.latch_space(), v_home);
  end if;
  return v_shared;
end
$$;
--! EndIncluded placement/take_latches.sql
--! Included placement/grant_lease.sql
-- Gives a host a lease on a cell, in place of what it may still hold there.
-- Caller: attempt_assign, write_move, which hold the host's row and the cell's latch. Locks: the lease. Outcome: its end.
create or replace function relay.grant_lease(p_ask relay.ask, p_cell_id text, p_epoch bigint, p_now timestamptz)
returns timestamptz
language plpgsql
as $$
declare
  v_expires_at constant timestamptz := p_now + relay.span_of('grantLeaseMs');
begin
  insert into relay.lease (user_id, relay_host_id, cell_id, epoch, state, units, expires_at)
  values (p_ask.user_id, p_ask.relay_host_id, p_cell_id, p_epoch, 'granted', relay.limit_of('controlUnits'), v_expires_at)
  on conflict on constraint lease_pkey do update
  set epoch = excluded.epoch, state = 'granted', units = excluded.units, expires_at = excluded.expires_at,
    incarnation = null, generation = null, inclusion_watermark = null, retire_until = null;
  return v_expires_at;
end
$$;
--! EndIncluded placement/grant_lease.sql
--! Included placement/write_move.sql
-- Writes a move: the host's other leases end, at once (forced) or in 60 s (retiring); the row names the target at a new
-- epoch; a lease is granted there. Null: no epoch can be minted yet.
-- Caller: attempt_assign, which holds the host's row and the latches. Locks: the host's leases.
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
    v_retire_until := p_now + relay.span_of('retiringLeaseMs');
    update relay.lease l
    set state = 'retiring', retire_until = v_retire_until
    where l.user_id = p_ask.user_id and l.relay_host_id = p_ask.relay_host_id and l.state <> 'retiring';
  end if;
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
  return v_epoch;
end
$$;
--! EndIncluded placement/write_move.sql
--! Included placement/note_grant.sql
-- Stamps a host that was granted a lease without a move, and writes the change.
-- Caller: attempt_assign, which holds the host's row. Locks: none more.
create or replace function relay.note_grant(p_ask relay.ask, p_result relay_v1.assign_result, p_is_new boolean)
returns void
language plpgsql
as $$
begin
  if not p_is_new then
    update relay.assignment a
    set last_activity_at = p_result.decided_at,
      unattached_since = coalesce(a.unattached_since, p_result.decided_at),
      preferred_region = coalesce(p_ask.preferred_region, a.preferred_region),
      preferred_region_at = case when p_ask.preferred_region is null then a.preferred_region_at else p_result.decided_at end
    where a.user_id = p_ask.user_id and a.relay_host_id = p_ask.relay_host_id;
  end if;
  insert into relay.change (kind, to_cell, user_id, relay_host_id, epoch, rule, at)
  values (case when p_is_new then 'placed' else 'granted' end, p_result.cell_id, p_ask.user_id, p_ask.relay_host_id,
    p_result.epoch, p_result.rule, p_result.decided_at);
end
$$;
--! EndIncluded placement/note_grant.sql
--! Included placement/attempt_assign.sql
-- One attempt to write what was decided unlocked: locks, decides again, and applies only what was decided before.
-- Caller: apply_assign, in a subtransaction that a raise undoes, locks included.
-- Locks: the host's row, the latches of home and target (ascending), then the host's leases.
-- Outcomes: granted, busy (rule timeline: no heartbeat since a failover). Raises RL101: the target has no room (any
-- more); RL102: its latch is taken, or was taken in the wrong mode; RL103: the decision no longer stands.
create or replace function relay.attempt_assign(
  p_ask relay.ask, p_decision relay.decision, p_target relay.target, p_wait boolean)
returns relay_v1.assign_result
language plpgsql
as $$
declare
  v_d relay.decision := p_decision;
  v_result relay_v1.assign_result;
  v_now timestamptz := relay.now();
  v_shared boolean;
  v_free int;
  v_to_home constant boolean := p_decision.action = 'grant' or p_target.cell_id = p_decision.cell_id;
begin
  v_result.epoch := relay.lock_host(p_ask, p_decision, p_target, v_now);
  if v_result.epoch is not null then
    v_shared := relay.take_latches(p_decision, p_target, p_wait);
    v_now := relay.now();
    if p_decision.action <> 'place' then
      v_d := relay.decide_assign(p_ask, v_now);
      if (v_d.action, v_d.rule) is distinct from (p_decision.action, p_decision.rule) then
        raise exception using errcode = 'RL103', message = 'the decision no longer stands';
      end if;
    end if;
    v_free := case v_d.action when 'grant' then v_d.free_units else relay.target_room(p_target.cell_id, v_now) end;
    if v_free > 0 is not true then
      raise exception using errcode = 'RL101', message = 'the target has no room';
    elsif v_shared and v_free <= relay.limit_of('skipSharedLatchBelowUnits') then
      raise exception using errcode = 'RL102', message = 'nearly full, and latched shared';
    end if;
    if v_d.action = 'move' and not v_to_home then
      v_result.epoch := relay.write_move(p_ask, v_d, p_target, v_now);
    end if;
  end if;
  if v_result.epoch is null then
    return ('busy', 'timeline', null, null, null, null, null, null, false, null, false, v_now)::relay_v1.assign_result;
  end if;
  v_result.outcome := 'granted';
  v_result.rule := v_d.rule;
  v_result.cell_id := coalesce(p_target.cell_id, v_d.cell_id);
  v_result.cell_url := coalesce(p_target.url, v_d.cell_url);
  v_result.region := coalesce(p_target.region, v_d.region);
  v_result.moved := v_d.action = 'move' and not v_to_home;
  v_result.from_cell_id := case when v_result.moved then v_d.cell_id end;
  v_result.verdict_wanted := false;
  v_result.decided_at := v_now;
  v_result.lease_expires_at := relay.grant_lease(p_ask, v_result.cell_id, v_result.epoch, v_now);
  if not v_result.moved then
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
-- Outcomes: granted; busy (row-busy: the host's row or a latch was not had in time; latch-busy: every cell with room
-- was skipped for its latch); no_capacity; or what was decided on the second look.
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
  v_moves boolean;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform relay.misuse('assign needs isolation level read committed');
  end if;
  for v_try in 1 .. 4 loop
    v_moves := v_d.action in ('place', 'move');
    if not v_moves and v_d.action <> 'grant' or v_moves and not p_place then
      return relay.answer(v_d, relay.now());
    end if;
    v_target := null;
    if v_moves then
      v_target := relay.choose_target(v_d.target_region, array_append(v_excluded, coalesce(v_d.excluded, '')), relay.now());
      if v_target.cell_id is null then
        exit when v_skipped;
        v_d.outcome := 'no_capacity';
        return relay.answer(v_d, relay.now());
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
        null;
    end;
    v_d := relay.decide_assign(p_ask, relay.now());
  end loop;
  v_d.outcome := 'busy'; v_d.rule := 'latch-busy';
  return relay.answer(v_d, relay.now());
end
$$;
--! EndIncluded placement/apply_assign.sql
--! Included placement/assign.sql
-- Which cell a host is to dial, at which epoch. Decides unlocked, and returns at once if nothing is to be written: a row
-- lock on the sticky path costs ×3. Only a grant, a placement or a move locks, decides again and writes.
-- `place => false` writes no placement and no move, and answers would_place instead.
-- Caller: director, for a host, a phone (resolve, invite), a sweep or an operator. Locks: see attempt_assign.
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
    or assign.requested_by not in ('host', 'resolve', 'invite', 'sweep', 'operator') is not false then
    perform relay.misuse('assign: user_id, relay_host_id and place are needed, requested_by is host, resolve, invite, sweep or operator');
  end if;
  v_ask := (assign.user_id, assign.relay_host_id, assign.preferred_region, assign.requested_by, assign.epoch_floor);
  v_now := relay.now();
  v_d := relay.decide_assign(v_ask, v_now);
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
--! Included placement/explain_candidates.sql
-- Every cell with its load, its limit and why it would not be the target of a decision, null if it could be.
-- Caller: explain_assign. Locks: none. Reasons: home, those of target_rejection, full, region (a cell of the preferred
-- region has room).
create or replace function relay.explain_candidates(p_decision relay.decision, p_now timestamptz)
returns jsonb
language plpgsql stable
as $$
begin
  return (
    with looked_at as (
      select c.cell_id, c.region, c.unit_limit, n.load,
        case when c.cell_id = p_decision.excluded then 'home' else relay.target_rejection(c, r, p_now) end as rejected
      from relay.cell c
      left join relay.cell_runtime r on r.cell_id = c.cell_id
      left join lateral relay.cell_load(c.cell_id, p_now) n on true
    ), counted as (
      select l.cell_id, l.region, l.unit_limit, l.load,
        coalesce(l.rejected, case when l.load >= l.unit_limit then 'full' end) as rejected
      from looked_at l
    ), ranked as (
      select k.*, bool_or(k.rejected is null and k.region = p_decision.target_region) over () as region_has_room
      from counted k
    )
    select coalesce(jsonb_agg(jsonb_build_object('cell_id', k.cell_id, 'load', k.load, 'limit', k.unit_limit,
      'rejected', coalesce(k.rejected, case when k.region_has_room and k.region <> p_decision.target_region then 'region' end))
      order by k.cell_id), '[]')
    from ranked k);
end
$$;
--! EndIncluded placement/explain_candidates.sql
--! Included placement/explain_assign.sql
-- What assign would answer for a host now, what it would look at, and every cell with the reason why it would not be
-- the target. Writes and locks nothing. Caller: operator, monitor, director. Locks: none.
create or replace function relay_v1.explain_assign(user_id text, relay_host_id text, preferred_region text default null)
returns jsonb
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_d relay.decision;
begin
  v_d := relay.decide_assign(
    (explain_assign.user_id, explain_assign.relay_host_id, explain_assign.preferred_region, 'host', null)::relay.ask, v_now);
  return jsonb_build_object('outcome', v_d.outcome, 'rule', v_d.rule, 'cause', v_d.cause,
    'inputs', jsonb_build_object(
      'row', (select to_jsonb(a) from relay.assignment a
        where a.user_id = explain_assign.user_id and a.relay_host_id = explain_assign.relay_host_id),
      'lease', (select to_jsonb(l) from relay.lease l
        where l.user_id = explain_assign.user_id and l.relay_host_id = explain_assign.relay_host_id
          and l.cell_id = v_d.cell_id),
      'cell', (select to_jsonb(c) from relay.cell c where c.cell_id = v_d.cell_id),
      'runtime', (select to_jsonb(r) from relay.cell_runtime r where r.cell_id = v_d.cell_id),
      'migration', null,
      'fence', null),
    'candidates', relay.explain_candidates(v_d, v_now));
end
$$;
comment on function relay_v1.explain_assign(text, text, text) is
  'What assign would answer now and why: outcome, rule, inputs, every candidate; writes and locks nothing';
--! EndIncluded placement/explain_assign.sql
--! Included placement/resolve.sql
-- Where the host of a phone's credential is seated. A miss is not an absence: unseated asks the director to place.
-- Caller: director, `POST /v1/resolve` (resume) and the invite mover (invite). Locks: none.
-- Outcomes: seated, unseated (a valid credential, but no row or no live home), invalid_credential.
create or replace function relay_v1.resolve(relay_host_id text, credential_hash text, credential_kind text)
returns relay_v1.resolve_result
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_result relay_v1.resolve_result;
  v_now timestamptz := relay.now();
begin
  if resolve.credential_kind not in ('invite', 'resume') is not false then
    perform relay.misuse('resolve: credential_kind is invite or resume');
  end if;
  v_result.user_id := relay.credential_owner(
    resolve.relay_host_id, resolve.credential_hash, resolve.credential_kind, v_now);
  if v_result.user_id is null then
    v_result.outcome := 'invalid_credential';
    return v_result;
  end if;
  select a.cell_id, c.url, c.region, a.epoch,
    case when l.epoch = a.epoch and l.state <> 'retiring' and l.expires_at > v_now then l.expires_at
      else v_now + relay.span_of('grantLeaseMs') end
  into v_result.cell_id, v_result.cell_url, v_result.region, v_result.epoch, v_result.lease_expires_at
  from relay.assignment a
  join relay.cell c on c.cell_id = a.cell_id
  join relay.cell_runtime r on r.cell_id = a.cell_id
  left join relay.lease l on l.user_id = a.user_id and l.relay_host_id = a.relay_host_id and l.cell_id = a.cell_id
  where a.user_id = v_result.user_id and a.relay_host_id = resolve.relay_host_id
    and r.ready and r.heard_at > v_now - relay.span_of('heartbeatTtlMs');
  v_result.outcome := case when found then 'seated' else 'unseated' end;
  return v_result;
end
$$;
comment on function relay_v1.resolve(text, text, text) is 'Where the host of a phone''s credential is seated';
--! EndIncluded placement/resolve.sql

--! Included seats/verify_seat.sql
-- Whether the row of a host names this cell and exactly this epoch; an older one and a newer one are both refused (P2).
-- Caller: cell, at a host's hello. Locks: none.
create or replace function relay_v1.verify_seat(user_id text, relay_host_id text, cell_id text, epoch bigint)
returns boolean
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
begin
  return exists (
    select from relay.assignment a
    where a.user_id = verify_seat.user_id and a.relay_host_id = verify_seat.relay_host_id
      and a.cell_id = verify_seat.cell_id and a.epoch = verify_seat.epoch);
end
$$;
comment on function relay_v1.verify_seat(text, text, text, bigint) is
  'Whether the row of a host names this cell and exactly this epoch';
--! EndIncluded seats/verify_seat.sql
--! Included seats/activate_control.sql
-- A host has proven itself on a cell: checks its seat once more and makes its lease active. Forgets why it closed
-- last, and that it was unattached.
-- Caller: cell, after the proof, and to take a lease again that a renewal did not find. Locks: the host's row (≤ 500 ms),
-- then its lease.
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
--! Included seats/renew_leases.sql
-- Renews the leases of the hosts of a cell, ≤ 200 a call. Reads and writes the leases alone: every writer of an
-- assignment ends the host's other leases in its own transaction, so a lease that is there is right.
-- A lease that has expired is renewed too: after an outage of the database the sockets are still there. The watermark
-- never rises, since what a heartbeat included once it goes on including.
-- Caller: cell, a batch a second at most. Locks: leases, skipped if locked.
-- Outcomes, a row each: renewed; retiring (with retire_until, and not renewed); control_activity_not_found;
-- lease_lock_unavailable; stale_cell_incarnation.
create or replace function relay_v1.renew_leases(cell_id text, incarnation uuid, leases jsonb)
returns table (user_id text, relay_host_id text, outcome text, lease_expires_at timestamptz, retire_until timestamptz)
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_current boolean := relay.is_incarnation(renew_leases.cell_id, renew_leases.incarnation);
begin
  if jsonb_array_length(renew_leases.leases) > relay.limit_of('renewalBatchRows') then
    perform relay.misuse(format('renew_leases: more than %s leases', relay.limit_of('renewalBatchRows')));
  end if;
  return query
  with asked as materialized (
    select q.*
    from jsonb_to_recordset(renew_leases.leases) as q (
      user_id text, relay_host_id text, epoch bigint, generation bigint, units int, inclusion_watermark bigint)
  ), there as (
    select l.user_id, l.relay_host_id, l.state, l.retire_until
    from asked q
    join relay.lease l on l.user_id = q.user_id and l.relay_host_id = q.relay_host_id
      and l.cell_id = renew_leases.cell_id and l.epoch = q.epoch and l.generation = q.generation
      and l.incarnation = renew_leases.incarnation
    where v_current
  ), locked as materialized (
    select l.user_id, l.relay_host_id, q.units, q.inclusion_watermark
    from asked q
    join relay.lease l on l.user_id = q.user_id and l.relay_host_id = q.relay_host_id
      and l.cell_id = renew_leases.cell_id and l.epoch = q.epoch and l.generation = q.generation
      and l.incarnation = renew_leases.incarnation and l.state = 'active'
    where v_current
    for update of l skip locked
  ), renewed as (
    update relay.lease l
    set expires_at = greatest(l.expires_at, v_now + relay.span_of('renewedLeaseMs')), units = k.units,
      inclusion_watermark = least(l.inclusion_watermark, k.inclusion_watermark)
    from locked k
    where l.user_id = k.user_id and l.relay_host_id = k.relay_host_id and l.cell_id = renew_leases.cell_id
    returning l.user_id, l.relay_host_id, l.expires_at
  )
  select q.user_id, q.relay_host_id,
    case
      when not v_current then 'stale_cell_incarnation'
      when n.user_id is not null then 'renewed'
      when t.state = 'retiring' then 'retiring'
      when t.user_id is not null then 'lease_lock_unavailable'
      else 'control_activity_not_found'
    end,
    n.expires_at, case when n.user_id is null then t.retire_until end
  from asked q
  left join there t on t.user_id = q.user_id and t.relay_host_id = q.relay_host_id
  left join renewed n on n.user_id = q.user_id and n.relay_host_id = q.relay_host_id;
end
$$;
comment on function relay_v1.renew_leases(text, uuid, jsonb) is 'Renews the leases of up to 200 hosts of a cell, an outcome each';
--! EndIncluded seats/renew_leases.sql
--! Included seats/release_lease.sql
-- Ends the lease of a control that closed, and keeps why it closed. A late close of an older socket matches no lease any
-- more, and frees nothing.
-- Caller: cell. Locks: the host's row (≤ 500 ms, then SQLSTATE 55P03: the lease ends by itself), then its lease.
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
    return 'not_held';
  end if;
  v_now := relay.now();
  if v_row.cell_id = release_lease.cell_id and v_row.epoch = release_lease.epoch then
    update relay.assignment a
    set last_activity_at = v_now, last_close_reason = release_lease.close_reason,
      last_close_reason_at = case when release_lease.close_reason is not null then v_now end
    where a.user_id = release_lease.user_id and a.relay_host_id = release_lease.relay_host_id;
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
      from (select coalesce(max(c.id), p_max_id) as head from relay.change c) x
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
  -- from the head, with the latest skipped ids as gaps: they may belong to transactions that are open now
  return relay.changes_page(v_timeline, greatest(v_pruned, v_head - v_max_rows), '{}', changes_since.cell_id, v_max_rows)
    || jsonb_build_object('resync', v_resync, 'more', false, 'changes', jsonb_build_array());
end
$$;
comment on function relay_v1.changes_since(jsonb, text, int) is
  'A page of changes after a cursor, the next cursor, and whether the reader must read its state anew';
--! EndIncluded changes/changes_since.sql
--! Included sweeps/sweep_leases.sql
-- Deletes expired leases, and stamps the end of each on the row of its host if the row is still of its cell and epoch.
-- Caller: director, on a timer. Locks: rows of hosts, then leases; both skipped if locked. Outcome: leases deleted.
create or replace function relay_v1.sweep_leases(max_rows int default 1000)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_swept int;
begin
  with expired as (
    select l.user_id, l.relay_host_id, l.cell_id
    from relay.lease l
    where l.expires_at <= v_now
    limit sweep_leases.max_rows
  ), host as materialized (
    select a.user_id, a.relay_host_id
    from relay.assignment a
    where (a.user_id, a.relay_host_id) in (select x.user_id, x.relay_host_id from expired x)
    order by a.user_id, a.relay_host_id
    for no key update skip locked
  ), doomed as materialized (
    select l.user_id, l.relay_host_id, l.cell_id
    from host h
    join relay.lease l on l.user_id = h.user_id and l.relay_host_id = h.relay_host_id
    where l.expires_at <= v_now
    for update of l skip locked
  ), gone as (
    delete from relay.lease l
    using doomed d
    where l.user_id = d.user_id and l.relay_host_id = d.relay_host_id and l.cell_id = d.cell_id
    returning l.user_id, l.relay_host_id, l.cell_id, l.epoch, l.expires_at
  ), stamped as (
    update relay.assignment a
    set last_activity_at = greatest(a.last_activity_at, g.expires_at)
    from gone g
    where a.user_id = g.user_id and a.relay_host_id = g.relay_host_id and a.cell_id = g.cell_id and a.epoch = g.epoch
  ), told as (
    insert into relay.change (kind, from_cell, user_id, relay_host_id, epoch, detail, at)
    select 'lease_ended', g.cell_id, g.user_id, g.relay_host_id, g.epoch, '{"reason": "expired"}', v_now
    from gone g
  )
  select count(*) into v_swept from gone;
  return v_swept;
end
$$;
comment on function relay_v1.sweep_leases(int) is 'Deletes expired leases; answers how many';
--! EndIncluded sweeps/sweep_leases.sql
--! Included sweeps/sweep_changes.sql
-- Prunes changes older than 15 min, oldest first, and moves the horizon in the same transaction: a cursor below it
-- resyncs. Caller: director, on a timer. Locks: changes, skipped if locked; setting. Outcome: changes deleted.
create or replace function relay_v1.sweep_changes(max_rows int default 10000)
returns int
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
  v_horizon bigint;
  v_pruned int;
begin
  with oldest as (
    select c.id, c.at from relay.change c order by c.id limit sweep_changes.max_rows
  ), doomed as materialized (
    select c.id
    from relay.change c
    join oldest o on o.id = c.id
    where o.at < v_now - relay.span_of('changeRetentionMs')
    for update of c skip locked
  ), gone as (
    delete from relay.change c using doomed d where c.id = d.id returning c.id
  )
  select count(*), max(g.id) into v_pruned, v_horizon from gone g;
  if v_pruned > 0 then
    update relay.setting s set changes_pruned_to = v_horizon where s.changes_pruned_to < v_horizon;
  end if;
  return v_pruned;
end
$$;
comment on function relay_v1.sweep_changes(int) is 'Prunes changes older than 15 min; answers how many';
--! EndIncluded sweeps/sweep_changes.sql

--! Included views/fleet_rows.sql
-- The rows of the view relay_v1.fleet. A function, so that who reads the view needs no right on the clock.
-- Caller: view fleet. Locks: none.
create or replace function relay.fleet_rows()
returns table (
  cell_id text, url text, region text, admission text, admit_mode text, live boolean, ready boolean,
  heard_age interval, enforced_units int, load int, unit_limit int, capped boolean, draining boolean, incarnation uuid,
  started_at timestamptz)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.url, c.region, c.admission, c.admit_mode,
    coalesce(r.ready and r.heard_at > v_now - relay.span_of('heartbeatTtlMs'), false), r.ready,
    v_now - r.heard_at, r.enforced_units, n.load, c.unit_limit, c.connection_hard_cap is not null,
    coalesce(c.drain_incarnation = r.incarnation, false), r.incarnation, r.started_at
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  left join lateral relay.cell_load(c.cell_id, v_now) n on true;
end
$$;
--! EndIncluded views/fleet_rows.sql
--! Included views/hosts_by_cell_rows.sql
-- The rows of the view relay_v1.hosts_by_cell. Cells that are no longer registered but have hosts are among them.
-- Caller: view hosts_by_cell. Locks: none.
create or replace function relay.hosts_by_cell_rows()
returns table (cell_id text, hosts bigint, granted bigint, active bigint, retiring bigint, units bigint)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  with host as (
    select a.cell_id, count(*) as hosts from relay.assignment a group by a.cell_id
  ), held as (
    select l.cell_id, count(*) filter (where l.state = 'granted') as granted,
      count(*) filter (where l.state = 'active') as active, count(*) filter (where l.state = 'retiring') as retiring,
      sum(l.units) as units
    from relay.lease l
    where l.expires_at > v_now
    group by l.cell_id
  )
  select k.cell_id, coalesce(h.hosts, 0), coalesce(d.granted, 0), coalesce(d.active, 0), coalesce(d.retiring, 0),
    coalesce(d.units, 0)
  from (select c.cell_id from relay.cell c union select h.cell_id from host h union select d.cell_id from held d) k
  left join host h on h.cell_id = k.cell_id
  left join held d on d.cell_id = k.cell_id;
end
$$;
--! EndIncluded views/hosts_by_cell_rows.sql
--! Included views/fleet.sql
-- Every cell as an operator wants to see it. Reader: monitor, operator.
create or replace view relay_v1.fleet as
select f.* from relay.fleet_rows() f order by f.cell_id;
comment on view relay_v1.fleet is 'Every cell: where it is, whether it is live, what it carries';
comment on column relay_v1.fleet.live is 'Ready, and heard less than 45 s ago';
comment on column relay_v1.fleet.load is 'What the last heartbeat said, and the leases that it cannot show yet';
comment on column relay_v1.fleet.unit_limit is 'Load below which the cell is given hosts';
--! EndIncluded views/fleet.sql
--! Included views/hosts_by_cell.sql
-- How many hosts belong on each cell, and what they hold there. Reader: monitor, operator.
create or replace view relay_v1.hosts_by_cell as
select h.* from relay.hosts_by_cell_rows() h order by h.cell_id;
comment on view relay_v1.hosts_by_cell is 'Hosts of each cell, and their unexpired leases by state';
comment on column relay_v1.hosts_by_cell.hosts is 'Hosts whose row names the cell';
comment on column relay_v1.hosts_by_cell.granted is 'Promised a seat and not attached';
comment on column relay_v1.hosts_by_cell.active is 'Seated';
comment on column relay_v1.hosts_by_cell.retiring is 'Moved away, in their last minute here';
--! EndIncluded views/hosts_by_cell.sql

--! Included roles/schema_version.sql
-- The version of this interface: a process refuses to start on a database that is older or newer than it knows.
-- Caller: every process at start. Locks: none. Rises with each migration that a process must wait for.
create or replace function relay_v1.schema_version()
returns int
language sql immutable parallel safe
security definer
set search_path = relay, pg_temp
as $$ select 1 $$;
comment on function relay_v1.schema_version() is 'Version of the schema: a process starts only on the one it knows';
--! EndIncluded roles/schema_version.sql
--! Included roles/grant_rights.sql
-- Who may call what (02, the SQL interface).
revoke execute on all functions in schema relay, relay_v1 from public;
grant usage on schema relay_v1 to relay_director, relay_cell, relay_operator, relay_monitor;

grant execute on function relay_v1.schema_version, relay_v1.register_cell, relay_v1.explain_assign
  to relay_director, relay_cell, relay_operator, relay_monitor;
grant execute on function relay_v1.assign, relay_v1.resolve, relay_v1.regions, relay_v1.cells, relay_v1.changes_since,
  relay_v1.sweep_leases, relay_v1.sweep_credentials, relay_v1.sweep_changes
  to relay_director;
grant execute on function relay_v1.heartbeat, relay_v1.verify_seat, relay_v1.activate_control, relay_v1.renew_leases,
  relay_v1.release_lease, relay_v1.cell_orders, relay_v1.changes_since, relay_v1.create_invite,
  relay_v1.open_connection, relay_v1.release_invite, relay_v1.install_credential, relay_v1.install_status,
  relay_v1.confirm_resume, relay_v1.revoke_device
  to relay_cell;
grant execute on function relay.fleet_rows, relay.hosts_by_cell_rows
  to relay_director, relay_operator, relay_monitor;
grant select on relay_v1.fleet, relay_v1.hosts_by_cell
  to relay_director, relay_operator, relay_monitor;
--! EndIncluded roles/grant_rights.sql
