/**
 * Numbers that a client keeps for itself; those of the wire are in `contract/limits.ts`. Times are milliseconds, sizes
 * bytes.
 */
export const CLIENT_LIMITS = {
  /** Longest time a server may ask a client to stay away. */
  maxRetryAfterMs: 300_000,
  httpTimeoutMs: 10_000,
  resolveTimeoutMs: 5_000,
  tokenTimeoutMs: 30_000,

  /** A host asks one director at most once in this time, a random one of the span each. */
  assignPaceMinMs: 5_000,
  assignPaceMaxMs: 5_500,
  /** A longer wait for the pace is not slept through but reported, as if the director had said 429. */
  assignMaxPaceWaitMs: 15_000,
  /** From the dial of a control to its `host-hello-ack`. */
  controlOpenMs: 15_000,
  controlRequestMs: 10_000,
  maxControlRequests: 64,
  /** A control that was rebound is kept this long for the answers still on their way. */
  reboundControlMs: 10_100,
  probeIntervalMs: 8_000,
  probeMaxUnanswered: 3,
  /** Tokens and control leases are renewed no later than this before their end. */
  renewBeforeMs: 90_000,
  renewRetryMinMs: 5_000,
  renewRetryMaxMs: 15_000,
  signOutFlushMs: 1_000,
  /** Between two dials of one data socket that a cell did not accept. */
  redialMinMs: 100,
  redialMaxMs: 500,

  phoneDialMs: 12_000,
  offlineRetryMinMs: 5_000,
  offlineRetryMaxMs: 15_000,
  rejectedProbeMinMs: 60_000,
  rejectedProbeMaxMs: 900_000,
  /** A connection that lived this long ends the streak of failures. */
  stableMs: 30_000,
  /** Idle phones ping where the platform can, so that a half-open socket is found. */
  phonePingMs: 25_000,

  /** `send()` resolves once the socket holds no more than this. */
  sendMarkBytes: 262_144,
  /** `send()` refuses what would make the socket hold more than this: its caller does not wait. */
  sendLimitBytes: 16 * 1_048_576,
  /** Unread messages pause the socket above the high mark and let it go on below the low one. */
  receiveHighBytes: 1_048_576,
  receiveLowBytes: 262_144,
  /** Where a socket cannot be paused (browsers), this many unread bytes close it. */
  receiveLimitBytes: 32 * 1_048_576,
} as const;
