--! Previous: sha1:f6346b8096987a2c3f8dbcaf51d5ca9d81597c2d
--! Hash: sha1:1a03b3b3ca1b579abc19729d575b122cbdc4b248
--! Message: reserve mode

-- Reserve mode: what directors and cells ask when seats are booked from memory.
set local lock_timeout = '5s';

create type relay.control as (
  user_id text, relay_host_id text, epoch bigint, generation bigint, units int, inclusion_watermark bigint);
comment on type relay.control is 'A control that a cell admitted from memory, and for which it wants a lease';
create type relay_v1.host_row_result as (
  user_id text, relay_host_id text, cell_id text, epoch bigint, cell_url text, region text, admit_mode text,
  last_activity_at timestamptz, unattached_since timestamptz, preferred_region text, leases jsonb, migration jsonb,
  read_at timestamptz);
comment on type relay_v1.host_row_result is 'Answer of host_row';
create type relay_v1.connection_budget_result as (
  cells int, directors int, auth int, api int, push int, configured int, overlap int, maintenance int, operating int,
  max_connections int, reserve int, usable int, spare int, budgeted int, within_budget boolean, in_use int);
comment on type relay_v1.connection_budget_result is 'Answer of connection_budget';

alter table relay.cell_runtime add column director_seen_at timestamptz;
comment on column relay.cell_runtime.director_seen_at is 'When a director that places by booking last polled the process, as its heartbeat says; null: never';
alter table relay.cell_effective_mode add column unleased int;
alter table relay.cell_effective_mode add constraint cell_effective_mode_unleased_range check (unleased >= 0);
comment on column relay.cell_effective_mode.unleased is 'Controls that the process admitted from memory and that have no lease yet, on its way back to db';

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
    when 'seatStampIntervalMs' then 3600000
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
    inclusion_watermark, total_connections, in_flight_connections, reserved_units, drain_told, drain_left, director_seen_at)
  values (heartbeat.cell_id, heartbeat.incarnation, heartbeat.started_at, heartbeat.ready, v_now,
    (heartbeat.load ->> 'enforced_units')::int, (heartbeat.load ->> 'inclusion_watermark')::bigint,
    (heartbeat.load ->> 'total_connections')::int, (heartbeat.load ->> 'in_flight_connections')::int,
    (heartbeat.load ->> 'reserved_units')::int, (heartbeat.load ->> 'drain_told')::int,
    (heartbeat.load ->> 'drain_left')::int,
    v_now - make_interval(secs => (heartbeat.load ->> 'director_contact_ms')::float8 / 1000))
  on conflict on constraint cell_runtime_pkey do update
  set incarnation = excluded.incarnation, started_at = excluded.started_at, ready = excluded.ready,
    heard_at = excluded.heard_at, enforced_units = excluded.enforced_units,
    inclusion_watermark = excluded.inclusion_watermark, total_connections = excluded.total_connections,
    in_flight_connections = excluded.in_flight_connections, reserved_units = excluded.reserved_units,
    drain_told = excluded.drain_told, drain_left = excluded.drain_left,
    director_seen_at = excluded.director_seen_at
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
drop function relay.write_effective_mode(text, uuid, text, timestamptz);
--! Included modes/write_effective_mode.sql
-- Writes what a process really does, and says so if that is new. The incarnation is looked at once more under the lock: a
-- process that was replaced while it waited must not write over its successor.
-- Caller: record_effective_mode, claim_trip_slot. Locks: the cell's own row of cell_effective_mode.
-- Outcome: whether it was written.
create or replace function relay.write_effective_mode(
  p_cell_id text, p_incarnation uuid, p_mode text, p_unleased int, p_now timestamptz)
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
  insert into relay.cell_effective_mode as e (cell_id, incarnation, mode, unleased, updated_at)
  values (p_cell_id, p_incarnation, p_mode, p_unleased, p_now)
  on conflict on constraint cell_effective_mode_pkey do update
  set incarnation = excluded.incarnation, mode = excluded.mode, unleased = excluded.unleased,
    updated_at = excluded.updated_at;
  if v_before is distinct from p_mode then
    perform relay.ring('effective_mode', p_cell_id, jsonb_build_object('from', v_before, 'to', p_mode), p_now);
  end if;
  return true;
end
$$;
--! EndIncluded modes/write_effective_mode.sql
drop function relay_v1.record_effective_mode(text, uuid, text);
--! Included modes/record_effective_mode.sql
-- A cell says how its process really admits hosts: at every change, and every 15 s while its flags say reserve. On the way
-- back to db it says, too, how many of its controls have no lease yet: it admits from memory until that is none.
-- Caller: cell. Locks: its own row. Outcomes: ok, stale_cell_incarnation (another process was heard last).
create or replace function relay_v1.record_effective_mode(cell_id text, incarnation uuid, mode text, unleased int default null)
returns text
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
begin
  if record_effective_mode.mode in ('db', 'reserve') is not true then
    perform relay.misuse('record_effective_mode: mode is db or reserve');
  elsif record_effective_mode.unleased < 0 then
    perform relay.misuse('record_effective_mode: unleased is a count');
  elsif not relay.is_incarnation(record_effective_mode.cell_id, record_effective_mode.incarnation) then
    return 'stale_cell_incarnation';
  end if;
  return case
    when relay.write_effective_mode(record_effective_mode.cell_id, record_effective_mode.incarnation,
      record_effective_mode.mode, record_effective_mode.unleased, relay.now()) then 'ok'
    else 'stale_cell_incarnation'
  end;
end
$$;
comment on function relay_v1.record_effective_mode(text, uuid, text, int) is
  'A cell says how its process really admits hosts: db or reserve';
--! EndIncluded modes/record_effective_mode.sql
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
    when relay.write_effective_mode(claim_trip_slot.cell_id, claim_trip_slot.incarnation, 'db', null, v_now) then 'granted'
    else 'stale_cell_incarnation'
  end;
end
$$;
comment on function relay_v1.claim_trip_slot(text, uuid, int) is
  'Asks for one of so many trip slots: granted, full, busy or stale_cell_incarnation';
--! EndIncluded modes/claim_trip_slot.sql
--! Included modes/is_polled.sql
-- Whether a director that places by booking has polled the process that a cell was last heard as, within the last 45 s, as its
-- heartbeat says. Caller: set_admit_mode, view modes. Locks: none.
create or replace function relay.is_polled(p_cell_id text, p_now timestamptz)
returns boolean
language plpgsql stable
as $$
begin
  return exists (
    select from relay.cell_runtime r
    where r.cell_id = p_cell_id and r.director_seen_at > p_now - relay.span_of('heartbeatTtlMs'));
end
$$;
--! EndIncluded modes/is_polled.sql
--! Included modes/set_admit_mode.sql
-- Records how a cell admits hosts. To reserve: record it here first, then set the flag. Back to db: the flag first, and
-- here once the process says that every host has its lease (view trip_slots, effective_mode).
-- Caller: operator. Locks: the cell, its latch (exclusive): a move off a dead reserve cell (rule 13) that holds the latch
-- is committed first, and one that waits reads the new mode.
-- Outcomes: ok, forbidden, cell_not_found, cell_has_open_migration, cell_has_open_drain, cell_flags_admit_reserve,
-- cell_admits_reserve. With a warning while no director that places by booking polls the cell: nobody would be booked there,
-- and it would trip.
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
  if set_admit_mode.mode = 'reserve' and not relay.is_polled(v_cell.cell_id, v_now) then
    raise warning 'no director with reserve placement on polls cell %: nobody is booked there, and it falls back to db',
      v_cell.cell_id;
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
--! Included placement/target_rejection.sql
-- Why a cell cannot be the target of a host, or null if it can, its load apart (03, target).
-- Inlined into the queries that use it. Caller: choose_target, target_room, explain_assign, regions. Locks: none.
-- Outcomes: admission, unheard, not_ready, draining, reserve (it takes hosts, but from bookings only).
create or replace function relay.target_rejection(p_cell relay.cell, p_runtime relay.cell_runtime, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_cell.admission <> 'general' then 'admission'
    when (p_runtime.heard_at > p_now - relay.span_of('heartbeatTtlMs')) is not true then 'unheard'
    when not p_runtime.ready then 'not_ready'
    when p_cell.drain_incarnation = p_runtime.incarnation then 'draining'
    when p_cell.admit_mode = 'reserve' and not relay.runs_on_database(p_cell.cell_id, p_runtime.incarnation, p_now) then 'reserve'
  end
$$;
--! EndIncluded placement/target_rejection.sql
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
  -- a reserve cell takes hosts, too: by a booking
  where coalesce(relay.target_rejection(c, r, v_now), 'reserve') = 'reserve'
  group by c.region
  order by c.region;
end
$$;
comment on function relay_v1.regions() is 'Regions that take hosts now, each with one or two origins to measure';
--! EndIncluded cells/regions.sql
drop function relay_v1.cells();
--! Included cells/cells.sql
-- All cells with their last heartbeat. Caller: director, on a doorbell and at a poll. Locks: none.
create or replace function relay_v1.cells()
returns table (
  cell_id text, url text, region text, admission text, admit_mode text, capacity_units int, connection_hard_cap int,
  connection_unobserved_bound int, incarnation uuid, started_at timestamptz, ready boolean, heard_age_ms bigint,
  enforced_units int, draining boolean, rolling boolean)
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
    coalesce(c.drain_incarnation = r.incarnation, false),
    coalesce(c.admission = 'migration-only' and c.roll_isolated_at > v_now - relay.span_of('rollStampTtlMs'), false)
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  order by c.cell_id;
end
$$;
comment on function relay_v1.cells() is 'All cells with their last heartbeat';
--! EndIncluded cells/cells.sql
--! Included placement/answer.sql
-- A decision that needs no write, as assign answers it. A refusal names a cell only when a verdict on it is wanted.
-- Caller: assign, apply_assign. Locks: none.
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
  if v_result.verdict_wanted then
    v_result.cell_id := p_decision.cell_id;
  end if;
  v_result.decided_at := p_now;
  return v_result;
end
$$;
--! EndIncluded placement/answer.sql
--! Included placement/resolve.sql
-- Where the host of a phone's credential is seated. A miss is not an absence: unseated asks the director to place.
-- Caller: director, `POST /v1/resolve` (resume) and the invite mover (invite). Locks: none.
-- Outcomes: seated; unseated (a valid credential, but no row, or no live home: then with the cell and the epoch of the row);
-- invalid_credential.
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
  select a.cell_id, a.epoch, c.url, c.region,
    case when l.epoch = a.epoch and l.state <> 'retiring' and l.expires_at > v_now then l.expires_at
      else v_now + relay.span_of('grantLeaseMs') end,
    case when r.ready and r.heard_at > v_now - relay.span_of('heartbeatTtlMs') then 'seated' else 'unseated' end
  into v_result.cell_id, v_result.epoch, v_result.cell_url, v_result.region, v_result.lease_expires_at, v_result.outcome
  from relay.assignment a
  left join relay.cell c on c.cell_id = a.cell_id
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  left join relay.lease l on l.user_id = a.user_id and l.relay_host_id = a.relay_host_id and l.cell_id = a.cell_id
  where a.user_id = v_result.user_id and a.relay_host_id = resolve.relay_host_id;
  if v_result.outcome = 'seated' is not true then
    v_result.outcome := 'unseated';
    v_result.cell_url := null;
    v_result.region := null;
    v_result.lease_expires_at := null;
  end if;
  return v_result;
end
$$;
comment on function relay_v1.resolve(text, text, text) is 'Where the host of a phone''s credential is seated';
--! EndIncluded placement/resolve.sql
--! Included placement/describe_host.sql
-- A row of a host with what belongs to it. Times inside the JSON are epoch milliseconds.
-- Caller: host_row. Locks: none.
create or replace function relay.describe_host(p_row relay.assignment)
returns setof relay_v1.host_row_result
language plpgsql stable
as $$
declare
  v_cell relay.cell;
begin
  select c.* into v_cell from relay.cell c where c.cell_id = p_row.cell_id;
  return query select p_row.user_id, p_row.relay_host_id, p_row.cell_id, p_row.epoch, v_cell.url, v_cell.region,
    v_cell.admit_mode, p_row.last_activity_at, p_row.unattached_since, p_row.preferred_region,
    (select coalesce(jsonb_agg(jsonb_build_object('cell_id', l.cell_id, 'epoch', l.epoch, 'state', l.state,
        'incarnation', l.incarnation, 'generation', l.generation, 'units', l.units,
        'expires_at', (extract(epoch from l.expires_at) * 1000)::bigint,
        'retire_until', (extract(epoch from l.retire_until) * 1000)::bigint) order by l.cell_id), '[]')
      from relay.lease l
      where l.user_id = p_row.user_id and l.relay_host_id = p_row.relay_host_id),
    (select jsonb_build_object('epoch', m.epoch, 'source_cell', m.source_cell, 'target_cell', m.target_cell,
        'pinned', m.pinned_at is not null, 'registered', m.registered_at is not null,
        'opened_at', (extract(epoch from m.opened_at) * 1000)::bigint)
      from relay.migration m
      where m.user_id = p_row.user_id and m.relay_host_id = p_row.relay_host_id
        and m.completed_at is null and m.aborted_at is null),
    relay.now();
end
$$;
--! EndIncluded placement/describe_host.sql
--! Included placement/host_row.sql
-- What Postgres knows of a host: its row, its leases, its open migration, and how its home admits hosts. With the account
-- one row at most, by primary key; without it one for each account that has a host of this id.
-- Caller: director, the reserve plan and whereabouts. Locks: none. Outcomes: a row each; none for a host without a row.
create or replace function relay_v1.host_row(relay_host_id text, user_id text default null)
returns setof relay_v1.host_row_result
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
begin
  if host_row.relay_host_id is null then
    perform relay.misuse('host_row: relay_host_id is needed');
  elsif host_row.user_id is not null then
    return query select r.* from relay.assignment a, relay.describe_host(a) r
    where a.user_id = host_row.user_id and a.relay_host_id = host_row.relay_host_id;
  else
    return query select r.* from relay.assignment a, relay.describe_host(a) r
    where a.relay_host_id = host_row.relay_host_id
    order by a.user_id;
  end if;
end
$$;
comment on function relay_v1.host_row(text, text) is
  'The row of a host, with its leases and its open migration; without the account, of every account with a host of this id';
--! EndIncluded placement/host_row.sql
--! Included placement/epoch_base.sql
-- Above which every epoch lies that is minted from now on, whatever a row says: a failover may have lost what it said (P1).
-- Null on a timeline for which no heartbeat has raised it yet, as mint_epoch has it.
-- Caller: director, which mints for bookings itself; after it has read the row. Locks: none.
create or replace function relay_v1.epoch_base()
returns bigint
language sql stable
security definer
set search_path = relay, pg_temp
as $$
  select s.epoch_base from relay.setting s where s.timeline = relay.timeline()
$$;
comment on function relay_v1.epoch_base() is
  'Above which every new epoch lies since the last failover; null until a heartbeat has raised it there';
--! EndIncluded placement/epoch_base.sql
--! Included credentials/seat_for_phone.sql
-- Where a phone finds its host, seen from one cell: the host's row against the seats that the cell holds.
-- Caller: open_connection. Locks: none: a move that commits now reaches the cell through the change log.
-- First match wins.
-- | place     | when                                                                                           |
-- |-----------|------------------------------------------------------------------------------------------------|
-- | attached  | the row names this cell and exactly the epoch of the host's seat on it                         |
-- | attached  | the cell is recorded as reserve, and its seat is newer than the row: the ledger is on its way   |
-- | detached  | the row names this cell, and the host has no active control on it                              |
-- | elsewhere | otherwise: no row; or it names another cell; or a seat here has another epoch                  |
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
  epoch := greatest(v_row.epoch, v_seat_epoch);
  place := case
    when v_row.cell_id = p_cell_id and v_seat_epoch = v_row.epoch then 'attached'
    when v_seat_epoch > coalesce(v_row.epoch, 0)
      and exists (select from relay.cell c where c.cell_id = p_cell_id and c.admit_mode = 'reserve') then 'attached'
    when v_row.cell_id = p_cell_id and v_seat_epoch is null then 'detached'
    else 'elsewhere'
  end;
  if place = 'detached' then
    if v_row.last_close_reason_at > p_now - relay.span_of('hostCloseReasonTtlMs') then
      close_reason := v_row.last_close_reason;
    end if;
  elsif place = 'attached' then
    select l.expires_at into lease_expires_at from relay.lease l
    where l.user_id = p_user_id and l.relay_host_id = p_relay_host_id and l.cell_id = p_cell_id and l.epoch = seat_for_phone.epoch
      and l.expires_at > p_now;
    lease_expires_at := coalesce(lease_expires_at, p_now + relay.span_of('grantLeaseMs'));
  end if;
end
$$;
--! EndIncluded credentials/seat_for_phone.sql
--! Included seats/attach_control.sql
-- Makes the lease of a host active under its control, and forgets why it closed last and that it was unattached. A migration
-- that brought it here is marked, and completed if its old seat is gone.
-- Caller: activate_control, reregister_control, which hold the host's row. Locks: the host's lease, then its migration.
-- Outcome: the end of the lease.
create or replace function relay.attach_control(
  p_row relay.assignment, p_incarnation uuid, p_generation bigint, p_units int, p_inclusion_watermark bigint,
  p_now timestamptz)
returns timestamptz
language plpgsql
as $$
declare
  v_expires_at timestamptz;
begin
  insert into relay.lease as l (user_id, relay_host_id, cell_id, epoch, incarnation, generation, state, units,
    inclusion_watermark, expires_at)
  values (p_row.user_id, p_row.relay_host_id, p_row.cell_id, p_row.epoch, p_incarnation, p_generation, 'active', p_units,
    p_inclusion_watermark, p_now + relay.span_of('renewedLeaseMs'))
  on conflict on constraint lease_pkey do update
  set epoch = excluded.epoch, incarnation = excluded.incarnation, generation = excluded.generation,
    state = excluded.state, units = excluded.units, inclusion_watermark = excluded.inclusion_watermark,
    expires_at = greatest(l.expires_at, excluded.expires_at), retire_until = null
  returning l.expires_at into v_expires_at;
  update relay.assignment a
  set last_activity_at = p_now, unattached_since = null, last_close_reason = null, last_close_reason_at = null
  where a.user_id = p_row.user_id and a.relay_host_id = p_row.relay_host_id;
  perform relay.settle_migration(p_row.user_id, p_row.relay_host_id, p_now);
  return v_expires_at;
end
$$;
--! EndIncluded seats/attach_control.sql
--! Included seats/activate_control.sql
-- A host has proven itself on a cell: checks its seat once more and makes its lease active (attach_control).
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
    v_expires_at := relay.attach_control(v_row, activate_control.incarnation, activate_control.generation,
      relay.limit_of('controlUnits')::int, activate_control.inclusion_watermark, relay.now());
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
--! Included seats/reregister_control.sql
-- Gives a control that was admitted from memory its lease: at exactly the epoch of the host's row, or not at all. Waits for
-- nobody. A newer control of the host on this process keeps the lease: the batch was on its way when it attached.
-- Caller: reregister_controls. Locks: the host's row, then its lease here, both passed over if locked; then its migration.
create or replace function relay.reregister_control(
  p_cell_id text, p_incarnation uuid, p_control relay.control, out outcome text, out lease_expires_at timestamptz)
language plpgsql
as $$
declare
  v_row relay.assignment;
  v_lease relay.lease;
  v_is_there boolean;
begin
  select a.* into v_row
  from relay.assignment a
  where a.user_id = p_control.user_id and a.relay_host_id = p_control.relay_host_id
  for no key update skip locked;
  if v_row.cell_id is null and exists (select from relay.assignment a
    where a.user_id = p_control.user_id and a.relay_host_id = p_control.relay_host_id) then
    outcome := 'busy';
    return;
  end if;
  select l.* into v_lease
  from relay.lease l
  where l.user_id = p_control.user_id and l.relay_host_id = p_control.relay_host_id and l.cell_id = p_cell_id
  for update skip locked;
  v_is_there := exists (select from relay.lease l
    where l.user_id = p_control.user_id and l.relay_host_id = p_control.relay_host_id and l.cell_id = p_cell_id);
  outcome := case
    when not relay.is_incarnation(p_cell_id, p_incarnation) then 'stale_cell_incarnation'
    when v_row.cell_id is null then 'no_assignment'
    when v_row.epoch < p_control.epoch then 'behind'
    when v_row.cell_id <> p_cell_id then 'wrong_cell'
    when v_row.epoch > p_control.epoch then 'wrong_epoch'
    when v_is_there and v_lease.cell_id is null then 'busy'
    when v_lease.state = 'active' and v_lease.incarnation = p_incarnation and v_lease.epoch = p_control.epoch
      and v_lease.generation > p_control.generation then 'superseded'
    else 'active'
  end;
  if outcome = 'active' then
    lease_expires_at := relay.attach_control(v_row, p_incarnation, p_control.generation, p_control.units,
      p_control.inclusion_watermark, relay.now());
  end if;
end
$$;
--! EndIncluded seats/reregister_control.sql
--! Included seats/reregister_controls.sql
-- A cell that leaves reserve mode takes leases for the controls that it admitted from memory, up to 200 a call (90). A host
-- that cannot be had now is answered so, and waits for the next call.
-- Caller: cell. Locks: rows of hosts in (user_id, relay_host_id) order, each with its lease and its migration; passed over
-- if locked.
-- Outcomes, a row each. Leased: active. Refused by the row: no_assignment, behind (the ledger has yet to record this seat),
-- wrong_cell, wrong_epoch. Not needed: superseded (a newer control of the host here holds the lease). To be tried again:
-- busy. The process leaves: stale_cell_incarnation.
create or replace function relay_v1.reregister_controls(cell_id text, incarnation uuid, controls jsonb)
returns table (user_id text, relay_host_id text, epoch bigint, generation bigint, outcome text, lease_expires_at timestamptz)
language plpgsql
security definer
set search_path = relay, pg_temp
set lock_timeout = '500ms'
as $$
declare
  v_control relay.control;
begin
  if jsonb_typeof(reregister_controls.controls) is distinct from 'array'
    or jsonb_array_length(reregister_controls.controls) > relay.limit_of('renewalBatchRows') then
    perform relay.misuse(format('reregister_controls: controls is an array of at most %s', relay.limit_of('renewalBatchRows')));
  elsif exists (
    select from jsonb_populate_recordset(null::relay.control, reregister_controls.controls) q
    where num_nulls(q.user_id, q.relay_host_id, q.epoch, q.generation, q.units, q.inclusion_watermark) > 0) then
    perform relay.misuse(
      'reregister_controls: a control is {user_id, relay_host_id, epoch, generation, units, inclusion_watermark}');
  end if;
  for v_control in
    select q.*
    from jsonb_populate_recordset(null::relay.control, reregister_controls.controls) q
    order by q.user_id, q.relay_host_id, q.generation
  loop
    user_id := v_control.user_id;
    relay_host_id := v_control.relay_host_id;
    epoch := v_control.epoch;
    generation := v_control.generation;
    select r.* into outcome, lease_expires_at
    from relay.reregister_control(reregister_controls.cell_id, reregister_controls.incarnation, v_control) r;
    return next;
  end loop;
end
$$;
comment on function relay_v1.reregister_controls(text, uuid, jsonb) is
  'Takes leases for up to 200 controls that a cell admitted from memory, an outcome each';
--! EndIncluded seats/reregister_controls.sql
--! Included ledger/stamp_seat.sql
-- Stamps that a host which a feed shows seated at its row was active; at most once an hour a host, and a stamp that somebody
-- else's lock prevents comes with the next reconcile.
-- Caller: record_seats, with the row as it read it. Locks: the host's row if it is due, skipped if locked.
create or replace function relay.stamp_seat(p_row relay.assignment, p_now timestamptz)
returns void
language plpgsql
as $$
begin
  if p_row.last_activity_at > p_now - relay.span_of('seatStampIntervalMs') then
    return;
  end if;
  update relay.assignment a
  set last_activity_at = p_now
  from (
    select x.user_id, x.relay_host_id
    from relay.assignment x
    where x.user_id = p_row.user_id and x.relay_host_id = p_row.relay_host_id
      and x.cell_id = p_row.cell_id and x.epoch = p_row.epoch
    for no key update skip locked
  ) mine
  where a.user_id = mine.user_id and a.relay_host_id = mine.relay_host_id;
end
$$;
--! EndIncluded ledger/stamp_seat.sql
drop function relay_v1.record_seats(jsonb);
--! Included ledger/record_seats.sql
-- Writes seats that a director booked, or read from a feed, into the rows of their hosts: only where the epoch is strictly
-- higher than the row's. The rows that are behind are found first; the others, which are nearly all, are not locked.
-- A row that says so already and shows no activity for an hour is stamped: a seat is activity, and one that was admitted
-- from memory has no lease to show it.
-- Caller: director, the ledger and its reconcile; at most 500 rows. Locks: the rows that are behind or due for a stamp, in
-- (user_id, relay_host_id) order; one that somebody else holds, or is making, is passed over.
-- Results: recorded (the row says so now, or did already), stale (the row has a higher epoch, or this one on another cell:
-- that seat is to be demoted), busy (locked: send it again). With the row as it is now; null when busy.
create or replace function relay_v1.record_seats(rows jsonb)
returns table (user_id text, relay_host_id text, result text, cell_id text, epoch bigint)
language plpgsql
security definer
set search_path = relay, pg_temp
as $$
declare
  v_seat record;
  v_row relay.assignment;
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
        cell_id := null;
        epoch := null;
        return next;
        continue;
      end if;
    end if;
    -- as it is now: of two directors that booked one epoch the first writer wins
    select a.* into v_row from relay.assignment a
    where a.user_id = v_seat.user_id and a.relay_host_id = v_seat.relay_host_id;
    cell_id := v_row.cell_id;
    epoch := v_row.epoch;
    if (v_row.cell_id, v_row.epoch) = (v_seat.cell_id, v_seat.epoch) then
      result := 'recorded';
      perform relay.stamp_seat(v_row, coalesce(v_now, relay.now()));
    else
      result := 'stale';
    end if;
    return next;
  end loop;
end
$$;
comment on function relay_v1.record_seats(jsonb) is
  'Brings the rows of hosts to seats [{user_id, relay_host_id, cell_id, epoch}] with a higher epoch: recorded, stale or busy';
--! EndIncluded ledger/record_seats.sql
--! Included views/modes_rows.sql
-- The rows of the view relay_v1.modes. Caller: view modes. Locks: none.
create or replace function relay.modes_rows()
returns table (
  cell_id text, region text, admit_mode text, flag_mode text, flags jsonb, flags_generation bigint, effective_mode text,
  effective_age interval, unleased int, seated int, state text, heard_age interval, incarnation uuid, polled boolean,
  director_age interval)
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_now timestamptz := relay.now();
begin
  return query
  select c.cell_id, c.region, c.admit_mode, coalesce(c.flags ->> 'admitMode', 'db'), c.flags, c.flags_generation,
    e.mode, v_now - e.updated_at, e.unleased,
    (select count(*)::int from relay.lease l
      where l.cell_id = c.cell_id and l.incarnation = r.incarnation and l.state = 'active' and l.expires_at > v_now),
    case when r.heard_at is null then 'never heard' when r.heard_at <= v_now - relay.span_of('heartbeatTtlMs') then 'unheard'
      when not r.ready then 'not ready' else 'live' end,
    v_now - r.heard_at, r.incarnation, relay.is_polled(c.cell_id, v_now), v_now - r.director_seen_at
  from relay.cell c
  left join relay.cell_runtime r on r.cell_id = c.cell_id
  left join relay.cell_effective_mode e on e.cell_id = c.cell_id and e.incarnation = r.incarnation;
end
$$;
--! EndIncluded views/modes_rows.sql
--! Included views/modes.sql
-- How each cell is to admit hosts, and how its process does. Reader: monitor, operator, director.
create view relay_v1.modes as
select m.* from relay.modes_rows() m order by m.cell_id;
comment on view relay_v1.modes is 'How each cell is to admit hosts (record and flags), and how its process does';
comment on column relay_v1.modes.admit_mode is 'What the operators recorded: what decisions about its hosts go by';
comment on column relay_v1.modes.flag_mode is 'What the flags tell the process';
comment on column relay_v1.modes.flags_generation is 'To be named by who writes the flags next';
comment on column relay_v1.modes.effective_mode is 'What the process that was heard last says that it does; null: it never was in reserve mode';
comment on column relay_v1.modes.effective_age is 'Since it said so';
comment on column relay_v1.modes.unleased is 'Controls without a lease yet, on the way back to db';
comment on column relay_v1.modes.seated is 'Hosts that hold a lease with this process';
comment on column relay_v1.modes.polled is 'Whether a director that places by booking polled it in the last 45 s';
comment on column relay_v1.modes.director_age is 'Since such a director last did; null: never';
--! EndIncluded views/modes.sql
--! Included budget/is_pool.sql
-- Whether a JSON value says how large a pool is: a number, or {"pool", "peak"} with a peak that is no larger.
-- Caller: connection_budget. Locks: none.
create or replace function relay.is_pool(p_value jsonb)
returns boolean
language plpgsql immutable
as $$
begin
  return relay.is_integer_within(p_value, 1, 1000)
    or coalesce(relay.is_integer_within(p_value -> 'pool', 1, 1000)
      and relay.is_integer_within(p_value -> 'peak', 1, (p_value ->> 'pool')::numeric::int), false);
end
$$;
--! EndIncluded budget/is_pool.sql
--! Included budget/cell_connections.sql
-- Connections that the registered cells hold at most, those of fenced cells apart: each its pool and its listeners. A pool
-- is that of the cell's name in p_pools, else of its region, else p_pool; a number, or {"pool", "peak"}: then a cell in
-- reserve mode counts its peak alone, but for as many as may run on the database at once (the largest deadManTripSlots; all
-- of them if one has none) or are being replaced: those with most to gain count whole.
-- Caller: connection_budget. Locks: none.
create or replace function relay.cell_connections(
  p_pool int, p_pools jsonb, p_listeners int, p_rolling int, p_now timestamptz)
returns int
language plpgsql stable
as $$
begin
  return (
    with cell as (
      select c.admit_mode = 'reserve' as reserve, coalesce(p_pools -> c.cell_id, p_pools -> c.region, to_jsonb(p_pool)) as pool,
        case when relay.is_integer_within(c.flags -> 'deadManTripSlots', 0, 64)
          then (c.flags -> 'deadManTripSlots')::numeric::int end as slots
      from relay.cell c
      where not relay.is_fenced(c.cell_id, p_now)
    ), sized as (
      select k.reserve, k.slots, coalesce(k.pool ->> 'pool', k.pool #>> '{}')::int as pool, (k.pool ->> 'peak')::int as peak
      from cell k
    ), spared as (
      select s.pool - s.peak as connections, s.slots from sized s where s.reserve and s.peak < s.pool
    ), whole as (
      select case when count(*) = count(p.slots) then max(p.slots) + p_rolling end as cells from spared p
    )
    select coalesce(sum(s.pool + p_listeners), 0)
      - coalesce((select sum(p.connections) from spared p), 0)
      + coalesce((select sum(p.connections) from (
          select n.connections from spared n order by n.connections desc limit (select w.cells from whole w)) p), 0)
    from sized s)::int;
end
$$;
--! EndIncluded budget/cell_connections.sql
--! Included budget/connection_budget.sql
-- Whether all that connects to this server fits: cells as they are registered, directors, and what else shares the server,
-- while one kind of process is replaced by its successors. What the database cannot know is given; a process that hears the
-- doorbell holds a listener besides its pool. The server's own limit counts, or the one given.
-- Within the budget: operating <= usable, and operating + reserve < max_connections.
-- Caller: operator, monitor. Locks: none. SQLSTATE RL001 for a pool that is no pool.
create or replace function relay_v1.connection_budget(
  cell_pool int default 10, cell_pools jsonb default '{}', directors int default 2, director_pool int default 3,
  listeners_per_director int default 1, listeners_per_cell int default 1, rolling int default 0, auth int default 0,
  api int default 0, push int default 0, max_connections int default null, maintenance int default 5,
  reserve int default 10)
returns relay_v1.connection_budget_result
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_b relay_v1.connection_budget_result;
begin
  if least(connection_budget.cell_pool, connection_budget.directors, connection_budget.director_pool,
    connection_budget.listeners_per_director, connection_budget.listeners_per_cell, connection_budget.rolling,
    connection_budget.auth, connection_budget.api, connection_budget.push, connection_budget.max_connections,
    connection_budget.maintenance, connection_budget.reserve) < 0 then
    perform relay.misuse('connection_budget: a count is not below zero');
  elsif jsonb_typeof(connection_budget.cell_pools) is distinct from 'object' or exists (
    select from jsonb_each(connection_budget.cell_pools) p
    where not relay.is_pool(p.value)) then
    perform relay.misuse('connection_budget: cell_pools is {cell or region: pool or {"pool", "peak"}}, each 1 to 1000');
  end if;
  v_b.cells := relay.cell_connections(connection_budget.cell_pool, connection_budget.cell_pools,
    connection_budget.listeners_per_cell, connection_budget.rolling, relay.now());
  v_b.directors := connection_budget.directors
    * (connection_budget.director_pool + connection_budget.listeners_per_director);
  v_b.auth := connection_budget.auth;
  v_b.api := connection_budget.api;
  v_b.push := connection_budget.push;
  v_b.configured := v_b.cells + v_b.directors + v_b.auth + v_b.api + v_b.push;
  v_b.overlap := greatest(
    2 * v_b.directors, v_b.directors + v_b.api, v_b.directors + v_b.auth, v_b.directors + 2 * v_b.push);
  v_b.maintenance := connection_budget.maintenance;
  v_b.operating := v_b.configured + v_b.overlap + v_b.maintenance;
  v_b.max_connections := coalesce(connection_budget.max_connections, current_setting('max_connections')::int);
  v_b.reserve := connection_budget.reserve;
  v_b.usable := v_b.max_connections - v_b.reserve;
  v_b.spare := v_b.usable - v_b.operating;
  v_b.budgeted := v_b.operating + v_b.reserve;
  v_b.within_budget := v_b.operating <= v_b.usable and v_b.budgeted < v_b.max_connections;
  v_b.in_use := (select sum(d.numbackends) from pg_stat_database d);
  return v_b;
end
$$;
comment on function relay_v1.connection_budget(
  int, jsonb, int, int, int, int, int, int, int, int, int, int, int) is
  'Whether the connections of cells, directors and what else shares the server fit its limit, replacements included';
--! EndIncluded budget/connection_budget.sql
--! Included roles/schema_version.sql
-- The version of this interface: a process refuses to start on a database that is older or newer than it knows.
-- Caller: every process at start. Locks: none. Rises with each migration that a process must wait for.
create or replace function relay_v1.schema_version()
returns int
language sql immutable parallel safe
security definer
set search_path = relay, pg_temp
as $$ select 3 $$;
comment on function relay_v1.schema_version() is 'Version of the schema: a process starts only on the one it knows';
--! EndIncluded roles/schema_version.sql
--! Included roles/grant_rights.sql
-- Who may call what (02, the SQL interface).
revoke execute on all functions in schema relay, relay_v1 from public;
grant usage on schema relay_v1 to relay_director, relay_cell, relay_operator, relay_monitor;

grant execute on function relay_v1.schema_version, relay_v1.register_cell, relay_v1.explain_assign
  to relay_director, relay_cell, relay_operator, relay_monitor;
grant execute on function relay_v1.simulate_outage, relay_v1.connection_budget to relay_operator, relay_monitor;
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
grant execute on function relay_v1.record_seats, relay_v1.host_row, relay_v1.epoch_base to relay_director;
grant execute on function relay_v1.record_effective_mode, relay_v1.claim_trip_slot to relay_cell;
grant execute on function relay.trip_slots_rows, relay.modes_rows to relay_director, relay_operator, relay_monitor;
grant select on relay_v1.trip_slots, relay_v1.modes to relay_director, relay_operator, relay_monitor;
grant execute on function relay_v1.heartbeat, relay_v1.verify_seat, relay_v1.activate_control, relay_v1.renew_leases,
  relay_v1.reregister_controls,
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
