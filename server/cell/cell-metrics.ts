import type { Metrics } from '../metrics.ts';
import { createModeMetrics, type ModeGauges } from './mode-metrics.ts';
import type { Units } from './units.ts';

export type CellMetrics = ReturnType<typeof createCellMetrics>;

export interface CellGauges {
  controls(): number;
  draining(): boolean;
  splices(): number;
  pending(): number;
  bookings(): number;
  units(): Units;
  modes: ModeGauges;
}

/** What a cell counts. Every refusal, close and failure carries its reason, from a closed set, as a label. */
export function createCellMetrics(metrics: Metrics, gauges: CellGauges) {
  metrics.gauge('orca_relay_controls', 'Hosts seated on this cell', [], gauges.controls);
  metrics.gauge('orca_relay_cell_draining', '1 while a drain order stands', [], () => Number(gauges.draining()));
  metrics.gauge('orca_relay_splices', 'Phones connected to their host', [], gauges.splices);
  metrics.gauge('orca_relay_pending_splices', 'Phones waiting for their host', [], gauges.pending);
  const units = gauges.units;
  metrics.gauge(
    'orca_relay_cell_units',
    'Connection units in use: sockets, upgrades, reservations',
    [],
    () => units().enforced,
  );
  metrics.gauge('orca_relay_cell_units_in_flight', 'Units of upgrades under way', [], () => units().inFlight);
  metrics.gauge('orca_relay_bookings', 'Seats kept for hosts that directors sent here', [], gauges.bookings);
  metrics.gauge('orca_relay_cell_units_reserved', 'Units kept for sockets to come', [], () => units().reserved);
  metrics.gauge('orca_relay_cell_unit_faults', 'Units given back twice: a mistake of ours', [], () => units().faults);
  return {
    ...createModeMetrics(metrics, gauges.modes),
    upgradesRefused: metrics.counter('orca_relay_upgrades_refused_total', 'WebSocket upgrades refused', [
      'path',
      'reason',
    ]),
    hellosShed: metrics.counter('orca_relay_host_hellos_shed_total', 'Control upgrades refused for a busy database'),
    authentications: metrics.counter('orca_relay_control_authentications_total', 'Host proofs and their outcome', [
      'outcome',
    ]),
    leaseShadow: metrics.counter('orca_relay_assignment_lease_shadow_total', 'Assignment leases that hosts showed', [
      'class',
    ]),
    controlCloses: metrics.counter('orca_relay_control_closes_total', 'Control sockets that closed', ['code', 'cause']),
    sessionEnds: metrics.counter('orca_relay_control_ends_total', 'Seats given up', ['cause']),
    rebinds: metrics.counter('orca_relay_control_rebinds_total', 'Controls rebound to a new socket'),
    roundTrip: metrics.histogram('orca_relay_control_round_trip_seconds', 'Ping to pong of a host control'),
    commands: metrics.counter('orca_relay_control_commands_total', 'Credential commands and their outcome', [
      'command',
      'outcome',
    ]),
    serviceRequests: metrics.counter('orca_relay_service_requests_total', 'What directors asked of this cell', [
      'path',
      'status',
    ]),
    feedPages: metrics.counter('orca_relay_seat_feed_pages_total', 'Pages of the seat feed that directors read', [
      'kind',
    ]),
    bookings: metrics.counter('orca_relay_booking_answers_total', 'Seats that directors asked for', ['run', 'outcome']),
    bookingEnds: metrics.counter('orca_relay_booking_ends_total', 'Bookings that are over', ['end']),
    demotes: metrics.counter('orca_relay_reserve_demotes_total', 'Seats that directors called outranked', ['outcome']),
    memoryHellos: metrics.counter('orca_relay_reserve_hellos_total', 'Host hellos on a cell in reserve mode', [
      'ground',
    ]),
    renewals: metrics.counter('orca_relay_control_renewals_total', 'Lease renewals by outcome', ['outcome']),
    renewalFlushSeconds: metrics.histogram('orca_relay_control_renewal_flush_seconds', 'Duration of renewal batches'),
    leaseRecoveries: metrics.counter('orca_relay_control_recoveries_total', 'Lost leases asked for again', ['outcome']),
    leaseReleases: metrics.counter('orca_relay_lease_releases_total', 'Leases given up', ['outcome']),
    accepts: metrics.counter('orca_relay_client_accepts_total', 'Phones that asked to be connected', [
      'kind',
      'outcome',
    ]),
    acceptsAbandoned: metrics.counter(
      'orca_relay_client_accepts_abandoned_total',
      'Phones that hung up before they were connected',
      ['stage'],
    ),
    acceptStageSeconds: metrics.histogram('orca_relay_client_accept_stage_seconds', 'Stages of a phone accept', [
      'stage',
    ]),
    attaches: metrics.counter('orca_relay_host_data_attaches_total', 'Host data sockets and their outcome', [
      'outcome',
    ]),
    inviteReleases: metrics.counter('orca_relay_invite_releases_total', 'Invites given back unused', ['outcome']),
    heartbeats: metrics.counter('orca_relay_heartbeats_total', 'Heartbeats by answer', ['answer']),
    heartbeatLateness: metrics.gauge('orca_relay_heartbeat_late_seconds', 'How late the last heartbeat was sent'),
    orderReads: metrics.counter('orca_relay_cell_order_reads_total', 'Looks at what operators want', ['outcome']),
    drainOrders: metrics.counter('orca_relay_cell_drain_orders_total', 'Drain orders by step', ['step']),
    drainTold: metrics.counter('orca_relay_cell_drain_told_total', 'Hosts told to leave by a drain order'),
    forcedCloses: metrics.counter(
      'orca_relay_host_drain_forced_closes_total',
      'Hosts that still had phones when their time was over',
      ['cause'],
    ),
    changes: metrics.counter('orca_relay_cell_changes_total', 'Changes acted upon', ['kind', 'action']),
  };
}
