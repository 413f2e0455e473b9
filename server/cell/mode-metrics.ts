import type { Metrics } from '../metrics.ts';
import type { AdmitMode } from '../sql-interface.ts';
import type { CellCore } from './cell-core.ts';
import { TRIP_STATES, type TripState } from './trip-states.ts';

export interface ModeGauges {
  raw(): AdmitMode;
  effective(): AdmitMode;
  unleased(): number;
  tripState(): TripState;
  reregistering(): number;
}

export function modeGauges(core: () => CellCore): ModeGauges {
  return {
    raw: () => core().modes.raw,
    effective: () => core().modes.effective,
    unleased: () => core().leases.unleased().length,
    tripState: () => core().modes.trip.state,
    reregistering: () => core().modes.reregistration.calls,
  };
}

/** What a cell counts of how it admits hosts. */
export function createModeMetrics(metrics: Metrics, gauges: ModeGauges) {
  metrics.gauge('orca_relay_reserve_mode', '1 while this cell admits from memory and bookings', [], () =>
    Number(gauges.raw() === 'reserve'),
  );
  metrics.gauge('orca_relay_reserve_mode_effective', '1 until every host holds a lease again, too', [], () =>
    Number(gauges.effective() === 'reserve'),
  );
  metrics.gauge('orca_relay_reserve_unleased_controls', 'Hosts seated from memory alone', [], gauges.unleased);
  metrics.gauge('orca_relay_reserve_reregistrations_in_flight', 'Calls that take leases', [], gauges.reregistering);
  metrics.gauge(
    'orca_relay_reserve_trip_state',
    `Of the dead-man trip: ${TRIP_STATES.map((name, i) => `${i} ${name}`).join(', ')}`,
    [],
    () => TRIP_STATES.indexOf(gauges.tripState()),
  );
  return {
    trips: metrics.counter('orca_relay_reserve_trips_total', 'Times this cell went over to the database by itself'),
    tripClaims: metrics.counter('orca_relay_reserve_trip_claims_total', 'Trip slots asked for', ['outcome']),
    rowWrites: metrics.counter('orca_relay_reserve_effective_writes_total', 'Writes of how this cell really admits', [
      'mode',
      'outcome',
    ]),
    reregistrations: metrics.counter(
      'orca_relay_reserve_reregistrations_total',
      'Leases asked for on leaving reserve mode',
      ['outcome'],
    ),
    flags: metrics.counter('orca_relay_cell_flags_total', 'New flags of this cell by what became of them', ['outcome']),
  };
}
