import { LIMITS } from '../../contract/limits.ts';
import type { CellRow } from '../sql-interface.ts';
import type { BookingEstimates } from './booking-estimates.ts';
import type { CellAddress } from './cell-post.ts';
import type { CellView, SeatView } from './seat-view.ts';

/** Which cells may be booked, and how a region divides its new hosts between bookings and the database (reserve-mode 1.4). */

/** A cell that was heard longer ago may have changed its mind. */
const FRESH_POLL_MS = 3_000;

export interface Candidate extends CellAddress {
  region: string;
  view: CellView;
  incarnation: string;
  free: number;
  /** Of its ceiling, 0 to 1. */
  load: number;
}

/** One cell as its row and its feed describe it. */
export interface PlanCell {
  row: CellRow;
  view: CellView | undefined;
}

export function planCells(rows: readonly CellRow[], seats: Pick<SeatView, 'cell'>): PlanCell[] {
  return rows.map((row) => ({ row, view: seats.cell(row.cell_id) }));
}

/** By its feed or by its row (04). */
export function isReserve({ row, view }: PlanCell): boolean {
  return row.admit_mode === 'reserve' || view?.mode === 'reserve';
}

/** Whether new hosts may be booked there at all, or in a dry run might be. Null: not now. */
export function candidateOf(cell: PlanCell, estimates: BookingEstimates, { dryRun = false } = {}): Candidate | null {
  const { row, view } = cell;
  if (row.admission !== 'general' || row.draining || view === undefined || view.draining) return null;
  if (view.mode !== 'reserve' && !dryRun) return null;
  if (view.ceiling === null || view.incarnation === null) return null;
  if (view.polledAgeMs === null || view.polledAgeMs > FRESH_POLL_MS) return null;
  const free = estimates.free(row.cell_id);
  return {
    cellId: row.cell_id,
    url: row.url,
    region: row.region,
    view,
    incarnation: view.incarnation,
    free,
    load: view.ceiling === 0 ? 1 : 1 - free / view.ceiling,
  };
}

export interface RegionOffer {
  candidates: readonly Candidate[];
  /** The database has a cell here to place on. */
  database: boolean;
  /** With which probability a new host is booked rather than left to the database; null where neither has a cell. */
  bookingShare: number | null;
}

/** @param candidates of any region */
export function regionOffer(region: string, cells: readonly PlanCell[], candidates: readonly Candidate[]): RegionOffer {
  const here = candidates.filter((candidate) => candidate.region === region);
  const database = cells.filter((cell) => cell.row.region === region && isDatabaseCell(cell));
  const bookable = sum(here.map(({ free }) => free));
  return { candidates: here, database: database.length > 0, bookingShare: share(here, bookable, database) };
}

function share(here: readonly Candidate[], bookable: number, database: readonly PlanCell[]): number | null {
  if (here.length + database.length === 0) return null;
  if (database.some(({ view }) => view?.ceiling == null)) return 0;
  const left = sum(database.map(({ view }) => Math.max(0, (view?.ceiling ?? 0) - (view?.units ?? 0))));
  return bookable + left === 0 ? (here.length > 0 ? 1 : 0) : bookable / (bookable + left);
}

/**
 * The database may place new hosts there: a live cell in db mode, or a reserve cell that fell back to it. One that is recorded
 * as reserve and on its way into that mode or out of it is no target of the database's.
 */
function isDatabaseCell(cell: PlanCell): boolean {
  const { row, view } = cell;
  if (row.admission !== 'general' || row.draining || row.ready !== true) return false;
  if (row.heard_age_ms === null || row.heard_age_ms >= LIMITS.heartbeatTtlMs) return false;
  return !isReserve(cell) || view?.tripped === true;
}

/** The better of two at random, so that directors with one and the same map do not all choose one cell. */
export function betterOfTwo(candidates: readonly Candidate[], random: () => number): Candidate | undefined {
  const first = Math.floor(random() * candidates.length);
  const other = (first + 1 + Math.floor(random() * (candidates.length - 1))) % candidates.length;
  const [a, b] = [candidates[first], candidates[other]];
  return a !== undefined && b !== undefined && b.load < a.load ? b : a;
}

/**
 * Where to look, in order: the region asked for, then the preferred default; any other only where neither has a cell.
 * @param asked the host's wish, or where it was last
 */
export function regionsToTry(cells: readonly PlanCell[], asked: string | null, fallback: string): string[] {
  const inhabited = new Set(cells.map(({ row }) => row.region));
  const wanted = [...new Set([asked ?? fallback, fallback])].filter((region) => inhabited.has(region));
  return wanted.length > 0 ? wanted : [...inhabited];
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
