import Table from 'cli-table3';
import type { CellViews } from '../../contract/cell-views.ts';
import type { WithheldVerdict } from '../../contract/events.ts';
import type { Paint } from '../dev/child-log.ts';

/** A row of the view relay_v1.fleet, ages in milliseconds. */
export interface FleetRow {
  cell_id: string;
  region: string;
  admission: string;
  admit_mode: string;
  effective_mode: string | null;
  state: 'live' | 'not ready' | 'unheard' | 'never heard';
  heard_age_ms: number | null;
  load: number | null;
  unit_limit: number;
  free_units: number | null;
  capped: boolean;
  draining: boolean;
  drain_progress: number | null;
  roll_age_ms: number | null;
  admission_generation: number;
}

export const FLEET_SQL = `
select cell_id, region, admission, admit_mode, effective_mode, state,
  round(extract(epoch from heard_age) * 1000)::bigint as heard_age_ms, load, unit_limit, free_units, capped, draining,
  drain_progress::float8 as drain_progress, round(extract(epoch from roll_age) * 1000)::bigint as roll_age_ms,
  admission_generation
from relay_v1.fleet
order by region, cell_id`;

/** What the polls of one director find; or why none was asked. */
export type DirectorsView = { views: CellViews } | { unasked: string };

const BAR_WIDTH = 12;
const STATE_STYLE = { live: 'bold', 'not ready': 'yellow', unheard: 'red', 'never heard': 'yellow' } as const;
const HEAD = ['region', 'cell', 'state', 'heard', 'load', '', 'admission', 'notes'];
/** Lines between rows would double the height. */
const COMPACT = { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' };

export function bar(share: number, width = BAR_WIDTH): string {
  // a cell that carries anything does not look empty
  const filled = Math.min(width, Math.max(share > 0 ? 1 : 0, Math.round(share * width)));
  return '█'.repeat(filled) + '░'.repeat(width - filled);
}

export function ago(ms: number | null): string {
  if (ms === null) return '-';
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7_200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3_600)} h`;
}

/** Why the hosts of a silent reserve cell wait. */
export function withheldWords(withheld: Omit<WithheldVerdict, 'cellId'>): string {
  const { reason, feedCells, failing, regionFeedCells, regionFailing, forMs } = withheld;
  const why =
    {
      sample: `too few cells: ${feedCells} have a feed`,
      fleet: `fleet: ${failing} of ${feedCells} fail`,
      region: `region: ${regionFailing} of ${regionFeedCells} fail`,
    }[reason] ?? reason;
  return `verdict withheld (${why})${forMs < 1_000 ? '' : ` for ${ago(forMs)}`}`;
}

/** A table and a line that sums it up. */
export function fleetTable(rows: readonly FleetRow[], seen: DirectorsView, paint: Paint): string {
  if (rows.length === 0) return 'No cell is registered.';
  const table = new Table({ head: HEAD, style: { head: [], border: [] }, chars: COMPACT });
  for (const row of rows) {
    table.push([
      row.region,
      row.cell_id,
      paint(STATE_STYLE[row.state], row.state),
      ago(row.heard_age_ms),
      bar((row.load ?? 0) / row.unit_limit),
      `${row.load ?? '-'}/${row.unit_limit}`,
      row.admission,
      notes(row, withheldOn(row.cell_id, seen)),
    ]);
  }
  const live = rows.filter(({ state }) => state === 'live');
  const free = live.reduce(
    (sum, { admission, free_units }) => sum + (admission === 'general' ? (free_units ?? 0) : 0),
    0,
  );
  const sum = `${table}\n${live.length} of ${rows.length} cells live, ${free} units free for hosts`;
  return 'unasked' in seen ? `${sum}\n${paint('dim', `What directors' polls find is unknown: ${seen.unasked}`)}` : sum;
}

/** Of one cell; null where no director was asked. */
export function pollsOf(cellId: string, seen: DirectorsView) {
  if ('unasked' in seen) return null;
  const view = seen.views.cells.find((one) => one.cellId === cellId);
  if (view === undefined) return null;
  const { feed, polledAgeMs, verdict } = view;
  return { feed, polled_age_ms: polledAgeMs, verdict, withheld: withheldOn(cellId, seen) };
}

function withheldOn(cellId: string, seen: DirectorsView): WithheldVerdict | null {
  return 'unasked' in seen ? null : (seen.views.withheld.find((one) => one.cellId === cellId) ?? null);
}

function notes(row: FleetRow, withheld: WithheldVerdict | null): string {
  return [
    withheld !== null && withheldWords(withheld),
    row.draining && `draining ${Math.floor((row.drain_progress ?? 0) * 100)} %`,
    row.roll_age_ms !== null && `roll for ${ago(row.roll_age_ms)}`,
    row.admit_mode === 'reserve' && (row.effective_mode === 'db' ? 'reserve, tripped' : 'reserve'),
    row.capped && 'capped',
  ]
    .filter(Boolean)
    .join(', ');
}
