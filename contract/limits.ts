/**
 * Every number of the wire and of admission, in one place. Times are milliseconds, sizes bytes, unless the name says
 * otherwise. SQL keeps the few it needs in `relay.setting`; a test holds both equal.
 */
export const LIMITS = {
  /** Protocol. */
  firstFrameDeadlineMs: 2_000,
  challengeWindowMs: 10_000,
  hostAttachDeadlineMs: 10_000,
  maxHostAttachDeadlineMs: 60_000,
  resumeConfirmationDeadlineMs: 30_000,
  controlPingIntervalMs: 15_000,
  controlSilenceTimeoutMs: 75_000,
  maxGraceMs: 3_600_000,
  maxDurationMs: 86_400_000,
  maxHttpBodyBytes: 4_096,
  maxControlFrameBytes: 1_048_576,
  maxFrameBytes: 8_388_608,
  /** A desktop reads no larger control message than this. */
  maxControlMessageToHostBytes: 65_535,
  maxResolveReplyBytes: 16_384,
  /** Active and pending together. */
  maxConnectionsPerHost: 8,
  maxCapabilities: 16,
  maxCapabilityLength: 64,

  /** How long an ill-mannered peer may ignore a close frame. */
  closeDeadlineMs: 1_000,
  /** What a WebSocket close frame can carry. */
  maxCloseReasonBytes: 123,

  /** Continuity of a control. */
  orphanGraceMs: 30_000,
  authExpiryGraceMs: 60_000,
  activationWaitMs: 30_000,
  controlLeaseMs: 6 * 3_600_000,
  controlLeaseJitterMs: 30 * 60_000,
  maxPingRoundTripMs: 120_000,

  /** Durable leases, `relay.lease`. */
  grantLeaseMs: 90_000,
  renewedLeaseMs: 105_000,
  firstRenewalMs: 15_000,
  renewalIntervalMs: 30_000,
  renewalFlushMs: 1_000,
  renewalBatchRows: 200,

  /** Heartbeats and placement. */
  heartbeatIntervalMs: 15_000,
  heartbeatTtlMs: 45_000,
  hearingWindowMs: 20_000,
  hearingSettleMs: 60_000,
  dormantTtlMs: 24 * 3_600_000,
  regionPreferenceTtlMs: 30 * 86_400_000,
  retiringLeaseMs: 60_000,
  lockWaitMs: 500,
  activityStampIntervalMs: 60_000,
  /** A host is stranded if it was granted a seat so long ago, and has asked within the window, without attaching. */
  strandedAfterMs: 60_000,
  strandedAskWindowMs: 15 * 60_000,
  /** How old a director's verdict on a dead cell may be when it reaches the decision. */
  pollEvidenceTtlMs: 5_000,
  /** With fewer cells on its feed a director judges none dead. */
  verdictMinFeedCells: 6,
  /** A holder of a trip slot that has not said so for this long holds none. */
  tripSlotTtlMs: 10 * 60_000,
  ledgerBatchRows: 500,
  /** How often the ledger stamps at most that a host seated from memory is active. */
  seatStampIntervalMs: 3_600_000,
  /** How long a cell counts as set apart for the replacement of its process. */
  rollStampTtlMs: 2 * 3_600_000,
  /** How long changes of state are kept for readers. */
  changeRetentionMs: 15 * 60_000,
  /** How far an epoch jumps past what may have been given and not recorded. */
  epochJump: 1_000,

  /** Drains and migrations. */
  migrationLeaseMs: 15 * 60_000,
  /** A migration that is still open after this long is given up, whatever its state. */
  migrationAbandonedMs: 24 * 3_600_000,
  /** How long one that ended is kept to be looked at. */
  migrationRetentionMs: 7 * 86_400_000,
  maxPaceMs: 20 * 60_000,
  /** Hosts that one call of an operator moves: it holds the latch of their target. */
  evacuationMaxHosts: 1_000,

  /** Fences. */
  fenceTtlMs: 5 * 60_000,
  fenceAttemptTtlMs: 60 * 60_000,
  mutationLeaseMs: 35 * 60_000,
  /** Of the hosts of a fenced cell, how many one pass of a sweep moves at most. */
  deadCellSweepPercent: 15,

  /** Tokens. */
  relayTokenTtlMs: 300_000,
  selfHostedTokenTtlMs: 900_000,
  assignmentLeaseTtlMs: 300_000,
  maxAssignmentLeaseLength: 4_096,
  /** What a director shows to a cell; it uses one for as long as `serviceTokenReuseMs`. */
  serviceTokenTtlMs: 900_000,
  serviceTokenReuseMs: 600_000,
  serviceTokenSkewMs: 60_000,

  /** Credentials. */
  inviteTtlMs: 600_000,
  /** Old desktops check an invite's end with no tolerance for skew, so it is issued with this much less. */
  inviteSkewMs: 30_000,
  inviteMaxAttempts: 5,
  inviteReservationMs: 15_000,
  inviteCooldownMs: 2_000,
  invitesPerAccountPerMinute: 30,
  directAuthorizationMs: 30_000,
  resumeTtlMs: 30 * 86_400_000,
  credentialGraceMs: 24 * 3_600_000,
  hostCloseReasonTtlMs: 24 * 3_600_000,
  /** How long spent rows are kept: invites after they expired, results for their replays, rate windows. */
  inviteRetentionMs: 24 * 3_600_000,
  installReplayMs: 30 * 86_400_000,
  confirmReplayMs: 24 * 3_600_000,
  rateWindowRetentionMs: 3_600_000,

  /** Admission: sockets that have not said who they are. */
  maxPreAuthConnections: 45,
  maxPreAuthPerSource: 4,
  maxPreAuthAttemptsPerSourcePerMinute: 30,
  maxPreAuthSources: 4_096,

  /** Admission: connection units. A capped cell counts against its hard cap, others against the total. */
  uncappedConnections: 900,
  reservedHostControls: 100,
  reservedHostDataSockets: 150,
  hardCaps: [600, 1_000, 3_000],
  maxCellCapacity: 100_000,
  defaultCellCapacity: 900,
  /** Units a host holds: its control, and each splice (phone and host data). */
  controlUnits: 1,
  spliceUnits: 2,
  /** Free units up to which a grant takes the cell's latch alone (02, capacity). */
  exclusiveLatchBelowUnits: 128,
  skipSharedLatchBelowUnits: 64,

  /** Reserve mode: bookings. */
  bookingTtlMs: 30_000,
  bookingItems: 64,
  maxBookingRequestBytes: 16_384,
  bookingTimeoutMs: 1_000,
  bookingBatchMs: 5,
  intakeBurst: 20,
  defaultIntakePerSec: 5,
  /** How long a host that left is let back in from memory, at the epoch it left with. */
  rejoinMs: 10 * 60_000,
  /** A seat that a newer one outranks keeps its phones this long. */
  demotedGraceMs: 60_000,

  /** Reserve mode: the seat feed. */
  seatRingChanges: 20_000,
  feedPageChanges: 2_000,
  feedLeaversKept: 20_000,
  feedLeaversSent: 2_000,
  feedPollMs: 1_000,
  feedTimeoutMs: 2_000,
  feedPagesAPoll: 5,
  /** Every seat of a large cell with room to spare: 20 000 of 800 bytes each. */
  maxFeedPageBytes: 16 * 1_048_576,
  /** What a director keeps of hosts that are seated nowhere, each kind by itself. */
  rememberedHosts: 100_000,
  rememberedLeaversAHost: 4,
  leaverMemoryMs: 24 * 3_600_000,
  rowFloorMs: 2 * 3_600_000,

  /** Splice, a direction each unless said otherwise. */
  spliceLowWaterBytes: 65_536,
  spliceHighWaterBytes: 262_144,
  spliceQueueBytes: 8_388_608 + 262_144,
  processQueueBytes: 64 * 1_048_576,
  spliceWedgedMs: 10_000,
} as const;
