import type { Metrics } from '../metrics.ts';
import type { RefreshAction, RefreshOutcome, SeatMap } from './seat-map.ts';
import type { FeedStatus } from './seat-view.ts';

const STATUSES: readonly FeedStatus[] = ['pending', 'live', 'no-feed', 'unverifiable'];

/** What the seat map and its poller count. */
export function measureFeed(metrics: Metrics, map: SeatMap) {
  const polls = metrics.counter('orca_relay_seat_feed_polls_total', 'Polls of cells, by how they ended', ['outcome']);
  const took = metrics.histogram('orca_relay_seat_feed_poll_seconds', 'Time that a poll of a cell took');
  const late = metrics.counter('orca_relay_seat_feed_late_seconds_total', 'By how much rounds of polls came late');
  const cells = metrics.gauge('orca_relay_seat_feed_cells', 'Cells, by what is known of their feed', ['status']);
  const complete = metrics.gauge('orca_relay_owner_map_complete', '1 when every cell that must has answered once');
  const entries = metrics.gauge('orca_relay_owner_map_entries', 'What the map holds, by kind', ['kind']);
  const refreshes = metrics.counter('orca_relay_owner_map_refresh_total', 'What polls did to the map', ['action']);
  const lost = metrics.counter('orca_relay_owner_map_unavailable_total', 'Cells whose seats went at once', ['reason']);
  map.onCell((event) => {
    if (event.type === 'unavailable') lost.inc({ reason: event.reason });
  });
  return {
    polled(outcome: RefreshOutcome, ms: number) {
      polls.inc({ outcome: outcome.ok ? 'ok' : outcome.failure });
      took.observe(ms / 1_000);
    },
    refreshed: (action: RefreshAction) => refreshes.inc({ action }),
    round(lateMs: number) {
      late.inc(lateMs / 1_000);
      const statuses = map.cells().map(({ status }) => status);
      for (const status of STATUSES) cells.set({ status }, statuses.filter((one) => one === status).length);
      for (const [kind, count] of Object.entries(map.sizes())) entries.set({ kind }, count);
      complete.set(map.complete() ? 1 : 0);
    },
  };
}
