/**
 * The functions of schema `relay_v1` that processes call, as TypeScript sees them: named parameters, and what a call
 * answers. Epochs, generations and watermarks are safe integers; a `timestamptz` arrives as epoch milliseconds of the
 * database clock. An expected refusal is an outcome from a closed set, never an exception.
 */

export type Admission = 'general' | 'migration-only' | 'existing-only';
export type AdmitMode = 'db' | 'reserve';
export type RequestedBy = 'host' | 'resolve' | 'invite' | 'sweep' | 'operator';

export type AssignOutcome = 'granted' | 'would_place' | 'busy' | 'unavailable' | 'no_capacity' | 'no_headroom';
export type UnavailableCause = 'booting' | 'draining' | 'unheard' | 'not_ready' | 'behind';

export interface AssignResult {
  outcome: AssignOutcome;
  rule: string;
  cause: UnavailableCause | null;
  /** Granted: where. Refused with `verdict_wanted`: the cell that the verdict is wanted on. Else null. */
  cell_id: string | null;
  cell_url: string | null;
  region: string | null;
  epoch: number | null;
  lease_expires_at: number | null;
  moved: boolean;
  from_cell_id: string | null;
  verdict_wanted: boolean;
  decided_at: number;
}

export interface ResolveResult {
  /**
   * `seated`: the home is live, the rest is filled. `unseated`: a valid credential, but no row, or no live home: then with
   * `user_id`, `cell_id` and `epoch` of the row.
   */
  outcome: 'seated' | 'unseated' | 'invalid_credential';
  user_id: string | null;
  cell_id: string | null;
  cell_url: string | null;
  region: string | null;
  epoch: number | null;
  lease_expires_at: number | null;
}

export interface CellRow {
  cell_id: string;
  url: string;
  region: string;
  admission: Admission;
  admit_mode: AdmitMode;
  capacity_units: number;
  connection_hard_cap: number | null;
  connection_unobserved_bound: number | null;
  incarnation: string | null;
  started_at: number | null;
  ready: boolean | null;
  heard_age_ms: number | null;
  enforced_units: number | null;
  draining: boolean;
  /** Set apart for the replacement of its process, less than 2 h ago. */
  rolling: boolean;
}

export interface HostLease {
  cell_id: string;
  epoch: number;
  state: 'granted' | 'active' | 'retiring';
  incarnation: string | null;
  generation: number | null;
  units: number;
  expires_at: number;
  retire_until: number | null;
}

/** What Postgres knows of a host. Its home may be a cell that is no longer registered: then url, region and mode are null. */
export interface HostRow {
  user_id: string;
  relay_host_id: string;
  cell_id: string;
  epoch: number;
  cell_url: string | null;
  region: string | null;
  admit_mode: AdmitMode | null;
  last_activity_at: number;
  unattached_since: number | null;
  preferred_region: string | null;
  /** Expired ones too, until a sweep takes them. */
  leases: HostLease[];
  /** The open one. */
  migration: {
    epoch: number;
    source_cell: string;
    target_cell: string;
    pinned: boolean;
    registered: boolean;
    opened_at: number;
  } | null;
  read_at: number;
}

export interface RecordedSeat {
  user_id: string;
  relay_host_id: string;
  /** `stale`: the row has a higher epoch, or this one on another cell: the seat is to be demoted. `busy`: send it again. */
  result: 'recorded' | 'stale' | 'busy';
  /** The row as it is now; null when busy. */
  cell_id: string | null;
  epoch: number | null;
}

export interface ChangeCursor {
  /** The server's timeline: ids of another timeline may repeat. */
  timeline: number;
  max_id: number;
  /** Ids below `max_id` that were not there yet: their transactions may still be open. */
  gaps: number[];
}

export type ChangeKind =
  | 'placed'
  | 'moved'
  | 'granted'
  | 'lease_ended'
  | 'recorded'
  | 'admission'
  | 'mode'
  | 'flags'
  | 'effective_mode'
  | 'drain'
  | 'migration'
  | 'fence'
  | 'cell_registered'
  | 'cell_retired'
  | 'incarnation';

export interface Change {
  id: number;
  kind: ChangeKind;
  from_cell: string | null;
  to_cell: string | null;
  user_id: string | null;
  relay_host_id: string | null;
  epoch: number | null;
  rule: string | null;
  /** For `moved`: `{"forced": bool, "retire_until": epoch ms | null}`. */
  detail: Record<string, unknown> | null;
  at: number;
}

export interface ChangesPage {
  cursor: ChangeCursor;
  /** Why the reader's own state can no longer be brought up to date from here, and must be read anew; null if it can. */
  resync: 'start' | 'timeline' | 'pruned' | 'ahead' | null;
  /** True when more rows wait: ask again at once. */
  more: boolean;
  changes: Change[];
}

export interface HeartbeatLoad {
  enforced_units: number;
  inclusion_watermark: number;
  total_connections?: number;
  in_flight_connections?: number;
  reserved_units?: number;
  hard_cap?: number;
  unobserved_bound?: number;
  /** While the process drains: hosts it has told to leave, and hosts still seated on it. */
  drain_told?: number;
  drain_left?: number;
  /** Since a director that places by booking last polled this process; absent: none has. */
  director_contact_ms?: number;
}

export type HeartbeatAnswer =
  | 'ok'
  | 'cell_not_found'
  | 'cell_origin_mismatch'
  | 'cell_region_mismatch'
  | 'stale_cell_incarnation'
  | 'cell_connection_telemetry_mismatch'
  | 'cell_connection_limit_not_configured'
  | 'stale_connection_snapshot';

export interface ActivateControlResult {
  outcome: 'active' | 'wrong_epoch' | 'wrong_cell' | 'no_assignment' | 'stale_cell_incarnation' | 'busy';
  lease_expires_at: number | null;
}

export interface LeaseRenewal {
  user_id: string;
  relay_host_id: string;
  epoch: number;
  generation: number;
  /** What this host holds on the cell now: control 1, each splice 2. */
  units: number;
  inclusion_watermark: number;
}

export interface RenewedLease {
  user_id: string;
  relay_host_id: string;
  outcome: 'renewed' | 'retiring' | 'control_activity_not_found' | 'lease_lock_unavailable' | 'stale_cell_incarnation';
  lease_expires_at: number | null;
  retire_until: number | null;
}

export interface ReregisteredControl {
  user_id: string;
  relay_host_id: string;
  epoch: number;
  generation: number;
  /**
   * `active`: it has its lease. Refused by the row: `no_assignment`, `behind` (the ledger has yet to record this seat),
   * `wrong_cell`, `wrong_epoch`. `superseded`: a newer control of the host here holds the lease. `busy`: try again.
   */
  outcome:
    | 'active'
    | 'no_assignment'
    | 'behind'
    | 'wrong_cell'
    | 'wrong_epoch'
    | 'superseded'
    | 'busy'
    | 'stale_cell_incarnation';
  lease_expires_at: number | null;
}

export interface DrainOrder {
  grace_ms: number;
  pace_ms: number;
  /** The process that is to drain; any other ignores it. */
  incarnation: string;
  /** Tells one order from the next, in epoch milliseconds of the database clock. */
  ordered_at: number;
}

export interface CellOrdersResult {
  admission: Admission;
  admit_mode: AdmitMode;
  flags: Record<string, unknown>;
  flags_generation: number;
  drain: DrainOrder | null;
}

export interface CreateInviteResult {
  outcome: 'created' | 'rate_limit_exceeded' | 'stale_cell_incarnation';
  expires_at: number | null;
  max_attempts: number | null;
}

export interface OpenConnectionResult {
  /**
   * `unknown_credential`: nobody's, revoked or spent (4409). `not_here`: the host's row names another cell or another epoch
   * than the control held here (4409). `credential_refused`: known but not usable now (4401). `host_offline`: no active
   * control here (4404 with `host_close_reason`).
   */
  outcome:
    | 'opened'
    | 'unknown_credential'
    | 'not_here'
    | 'credential_refused'
    | 'host_offline'
    | 'stale_cell_incarnation';
  user_id: string | null;
  epoch: number | null;
  credential_kind: 'invite' | 'resume' | null;
  relay_device_id: string | null;
  lease_expires_at: number | null;
  credential_version: number | null;
  accepted_as: 'current' | 'grace' | null;
  resume_expires_at: number | null;
  grace_expires_at: number | null;
  /** Until when an invite is reserved for this connection; null for resume. */
  reserved_until: number | null;
  host_close_reason: string | null;
}

export interface InstallResult {
  outcome:
    | 'committed'
    | 'not_found'
    | 'invalid_relay_basis'
    | 'invalid_direct_authorization'
    | 'current_hash_mismatch'
    | 'stale_cell_incarnation';
  authorization_mode: 'relay-basis' | 'authenticated-direct' | null;
  current_version: number | null;
  resume_expires_at: number | null;
  grace_expires_at: number | null;
}

export interface ConfirmResult {
  outcome:
    | 'confirmed'
    | 'confirmation_tuple_mismatch'
    | 'confirmation_not_active'
    | 'reject-retired'
    | 'reject-expired'
    | 'reject-revoked'
    | 'credential_not_found'
    | 'stale_cell_incarnation';
  current_version: number | null;
  accepted_as: 'current' | 'grace' | null;
  renewed: boolean | null;
  resume_expires_at: number | null;
  grace_expires_at: number | null;
}

/** How a function answers: one row, one scalar, or a set of rows. */
type Row<P, R> = { shape: 'row'; params: P; result: R };
type Value<P, R> = { shape: 'value'; params: P; result: R };
type Rows<P, R> = { shape: 'rows'; params: P; result: R[] };

interface Host {
  user_id: string;
  relay_host_id: string;
}
interface Caller {
  cell_id: string;
  incarnation: string;
}

export interface RelayFunctions {
  assign: Row<
    Host & {
      preferred_region?: string | null;
      requested_by?: RequestedBy;
      epoch_floor?: number | null;
      poll_evidence?: unknown;
      place?: boolean;
      seen?: { cell_id: string; epoch: number } | null;
    },
    AssignResult
  >;
  resolve: Row<{ relay_host_id: string; credential_hash: string; credential_kind: 'invite' | 'resume' }, ResolveResult>;
  explain_assign: Value<Host & { preferred_region?: string | null }, unknown>;
  regions: Rows<Record<string, never>, { region: string; probe_origins: string[] }>;
  cells: Rows<Record<string, never>, CellRow>;
  changes_since: Value<{ cursor: ChangeCursor | null; cell_id?: string | null; max_rows?: number }, ChangesPage>;
  sweep_leases: Value<{ max_rows?: number }, number>;
  sweep_credentials: Value<{ max_rows?: number }, number>;
  sweep_changes: Value<{ max_rows?: number }, number>;
  sweep_dead_cells: Value<{ max_rows?: number }, number>;
  sweep_migrations: Value<{ max_rows?: number }, number>;
  /** One row at most with `user_id`; without it one for each account that has a host of this id. */
  host_row: Rows<{ relay_host_id: string; user_id?: string | null }, HostRow>;
  /** Null on a timeline for which no heartbeat has raised it yet. */
  epoch_base: Value<Record<string, never>, number | null>;
  /** At most `ledgerBatchRows`; answered in order of host and epoch. */
  record_seats: Rows<{ rows: (Host & { cell_id: string; epoch: number })[] }, RecordedSeat>;

  register_cell: Value<
    {
      cell_id: string;
      url: string;
      region: string;
      capacity_units: number;
      connection_hard_cap?: number | null;
      connection_unobserved_bound?: number | null;
      admission?: Admission;
    },
    string
  >;

  heartbeat: Value<
    Caller & { url: string; region: string; started_at: Date; ready: boolean; load: HeartbeatLoad },
    HeartbeatAnswer
  >;
  verify_seat: Value<Host & { cell_id: string; epoch: number }, boolean>;
  activate_control: Row<
    Host & Caller & { epoch: number; generation: number; inclusion_watermark: number },
    ActivateControlResult
  >;
  renew_leases: Rows<Caller & { leases: LeaseRenewal[] }, RenewedLease>;
  release_lease: Value<
    Host & Caller & { epoch: number; generation: number; close_reason?: string | null },
    'released' | 'not_held' | 'stale_cell_incarnation'
  >;
  /** At most `renewalBatchRows`, an answer each. */
  reregister_controls: Rows<Caller & { controls: LeaseRenewal[] }, ReregisteredControl>;
  record_effective_mode: Value<
    /** `unleased`: controls without a lease yet, on the way back to db. */
    Caller & { mode: AdmitMode; unleased?: number | null },
    'ok' | 'stale_cell_incarnation'
  >;
  claim_trip_slot: Value<Caller & { slots: number }, 'granted' | 'full' | 'busy' | 'stale_cell_incarnation'>;
  /** One row; none for a cell that is not registered. */
  cell_orders: Rows<Caller, CellOrdersResult>;

  create_invite: Row<Host & Caller & { relay_device_id: string; token_hash: string }, CreateInviteResult>;
  open_connection: Row<
    Caller & {
      relay_host_id: string;
      credential_hash: string;
      conn_id: string;
      /** Hosts of this id that hold an active control on the calling cell: `[{"user_id", "epoch"}]`. */
      seats: { user_id: string; epoch: number }[];
    },
    OpenConnectionResult
  >;
  release_invite: Value<
    Caller & { relay_host_id: string; token_hash: string; conn_id: string },
    'cooldown' | 'invalidated' | 'not_reserved' | 'stale_cell_incarnation'
  >;
  install_credential: Row<
    Host &
      Caller & {
        req_id: string;
        relay_device_id: string;
        new_token_hash: string;
        expected_current_hash?: string | null;
        authorization_mode: 'relay-basis' | 'authenticated-direct';
        /** The live invite connection that vouches for a `relay-basis` install, null if the cell knows none. */
        basis?: { conn_id: string; token_hash: string } | null;
        direct_auth_id?: string | null;
      },
    InstallResult
  >;
  install_status: Row<Host & { relay_device_id: string; req_id: string }, InstallResult>;
  confirm_resume: Row<
    Host &
      Caller & {
        req_id: string;
        basis_conn_id: string;
        /** The live resume connection, null if the cell knows none that is active and within its deadline. */
        basis?: { relay_device_id: string; credential_version: number } | null;
      },
    ConfirmResult
  >;
  revoke_device: Value<
    Host & Caller & { relay_device_id: string },
    'revoked' | 'credential_not_found' | 'stale_cell_incarnation'
  >;
}

export type RelayFunction = keyof RelayFunctions;
export type ParamsOf<F extends RelayFunction> = RelayFunctions[F]['params'];
export type ResultOf<F extends RelayFunction> = RelayFunctions[F]['result'];
