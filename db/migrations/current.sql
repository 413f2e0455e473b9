-- The first schema. `relay` holds tables and internal functions and belongs to the owner alone; `relay_v1` is what
-- processes and operators call.
set local lock_timeout = '5s';

--! include roles/create_roles.sql

create schema relay;
comment on schema relay is 'Tables and internal functions of Orca Relay. Nobody but the owner touches it';
create schema relay_v1;
comment on schema relay_v1 is 'Functions and views that processes and operators of Orca Relay call, version 1';
revoke all on schema relay, relay_v1 from public;

--! include rules/now.sql
--! include rules/timeline.sql
--! include rules/limit_of.sql
--! include rules/span_of.sql
--! include rules/latch_space.sql

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
create index change_from_cell_idx on relay.change (from_cell, id) where from_cell is not null;
create index change_to_cell_idx on relay.change (to_cell, id) where to_cell is not null;
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

--! include credentials/invite_state.sql
--! include credentials/resume_state.sql
--! include credentials/version_shown.sql
--! include credentials/credential_standing.sql
--! include credentials/open_grace.sql
--! include credentials/find_device.sql
--! include credentials/credential_owner.sql
--! include credentials/seat_for_phone.sql
--! include credentials/reserve_invite.sql
--! include credentials/lock_open_invites.sql
--! include credentials/invalidate_invites.sql
--! include credentials/take_from_rate_window.sql
--! include credentials/create_invite.sql
--! include credentials/open_connection.sql
--! include credentials/release_invite.sql
--! include credentials/rotate_device.sql
--! include credentials/claim_direct_authorization.sql
--! include credentials/committed_install.sql
--! include credentials/apply_install.sql
--! include credentials/install_credential.sql
--! include credentials/install_status.sql
--! include credentials/apply_confirm.sql
--! include credentials/confirm_resume.sql
--! include credentials/revoke_device.sql
--! include credentials/sweep_credentials.sql
-- credentials: end

--! include rules/assignment_is_monotonic.sql
--! include rules/assignment_is_kept.sql
--! include rules/cell_change_takes_latch.sql
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

--! include rules/misuse.sql
--! include rules/audit.sql
--! include rules/may_operate.sql

--! include cells/ring.sql
--! include cells/load.sql
--! include cells/hearing.sql
--! include cells/is_incarnation.sql
--! include cells/heartbeat_refusal.sql
--! include cells/note_outage.sql
--! include cells/heartbeat.sql
--! include cells/register_cell.sql
--! include cells/cells.sql
--! include cells/regions.sql
--! include cells/cell_orders.sql

--! include placement/target_rejection.sql
--! include placement/choose_target.sql
--! include placement/target_room.sql
--! include placement/mint_epoch.sql
--! include placement/unavailable_cause.sql
--! include placement/is_dormant.sql
--! include placement/decide_assign.sql
--! include placement/answer.sql
--! include placement/stamp_activity.sql
--! include placement/lock_host.sql
--! include placement/take_latches.sql
--! include placement/grant_lease.sql
--! include placement/write_move.sql
--! include placement/note_grant.sql
--! include placement/attempt_assign.sql
--! include placement/apply_assign.sql
--! include placement/assign.sql
--! include placement/explain_candidates.sql
--! include placement/explain_assign.sql
--! include placement/resolve.sql

--! include seats/verify_seat.sql
--! include seats/activate_control.sql
--! include seats/renew_leases.sql
--! include seats/release_lease.sql

--! include changes/changes_page.sql
--! include changes/changes_since.sql
--! include sweeps/sweep_leases.sql
--! include sweeps/sweep_changes.sql

--! include views/fleet_rows.sql
--! include views/hosts_by_cell_rows.sql
--! include views/fleet.sql
--! include views/hosts_by_cell.sql

--! include roles/schema_version.sql
--! include roles/grant_rights.sql
