import type { Metrics } from '../metrics.ts';
import type { AdmitMode } from '../sql-interface.ts';
import type { CellCore } from './cell-core.ts';

export interface ModeGauges {
  raw(): AdmitMode;
  effective(): AdmitMode;
  unleased(): number;
}

export function modeGauges(core: () => CellCore): ModeGauges {
  return {
    raw: () => core().modes.raw,
    effective: () => core().modes.effective,
    unleased: () => core().leases.unleased().length,
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
  return {
    flags: metrics.counter('orca_relay_cell_flags_total', 'New flags of this cell by what became of them', ['outcome']),
  };
}
