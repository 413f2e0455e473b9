import { route } from '../http.ts';
import type { App } from '../uws.ts';

/** What a director alone answers for what only a cell has; on one origin with a cell, the cell answers. */
const CELL_ONLY = [
  ['/internal/reserve', 'reserve_unavailable'],
  ['/internal/demote', 'reserve_unavailable'],
  ['/v1/admin/cell-seats', 'cell_only'],
] as const;

export function registerCellOnly(app: App): void {
  for (const [path, error] of CELL_ONLY) route(app, 'any', path, () => ({ status: 404, json: { error } }));
}
