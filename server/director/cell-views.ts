import type { CellViews } from '../../contract/cell-views.ts';
import { type Reply, route } from '../http.ts';
import { browserRefusal } from '../readers.ts';
import type { RoleContext } from '../role-part.ts';
import type { App } from '../uws.ts';
import type { DeadCellVerdicts } from './dead-cell-verdicts.ts';
import type { SeatView } from './seat-view.ts';

/** `GET /v1/admin/cells`: how this director's polls find the cells, and whose verdict it withholds. Asks no database. */

export function registerCellViews(
  app: App,
  { clock, config, metrics }: RoleContext,
  seats: SeatView,
  verdicts: DeadCellVerdicts,
): void {
  const asked = metrics.counter('orca_relay_cell_views_total', 'Times somebody asked how cells are found', ['outcome']);

  route(app, 'get', '/v1/admin/cells', (request): Reply => {
    const refused = browserRefusal(config.metricsKey, request);
    asked.inc({ outcome: refused ?? 'ok' });
    if (refused !== null) return { status: refused === 'unauthorized' ? 401 : 403, json: { error: refused } };
    const json: CellViews = {
      v: 1,
      at: Math.round(clock.wallNow()),
      cells: seats.cells().map(({ cellId, status, polledAgeMs }) => ({
        cellId,
        feed: status,
        polledAgeMs: polledAgeMs && Math.round(polledAgeMs),
        verdict: verdicts.look(cellId).verdict,
      })),
      withheld: [...verdicts.withheld()],
    };
    return { status: 200, json, headers: { 'cache-control': 'no-store' } };
  });
}
