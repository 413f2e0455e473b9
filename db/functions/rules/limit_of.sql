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
