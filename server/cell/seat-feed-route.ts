import { LIMITS } from '../../contract/index.ts';
import { type FeedCursor, readFeedCursor } from '../../contract/seat-feed.ts';
import type { Request } from '../http.ts';
import type { App } from '../uws.ts';
import type { CellCore } from './cell-core.ts';
import type { SeatPage } from './seat-log.ts';
import { INVALID_REQUEST, serviceRoute } from './service-door.ts';
import type { Units } from './units.ts';

const FEED_PATH = '/v1/admin/cell-seats';

/**
 * The seats of this cell, for directors. `since` is the cursor of what a reader has; without one it is told everything.
 * `reserver=1` says that the reader books seats here, which the dead-man's switch waits for: it counts whatever the cursor.
 */
export function registerSeatFeed(app: App, core: CellCore, units: Units): void {
  serviceRoute(app, 'get', FEED_PATH, core, ({ query }: Request) => {
    const asked = new URLSearchParams(query);
    if (asked.get('reserver') === '1') core.modes.contact();
    const since = asked.get('since');
    const cursor = since === null ? null : readFeedCursor(since);
    if (since !== null && cursor === null) return INVALID_REQUEST;
    return { status: 200, json: { ...head(core, units), ...counted(core, cursor) } };
  });
}

function counted(core: CellCore, cursor: FeedCursor | null): SeatPage {
  const page = core.seatLog.page(cursor);
  core.metrics.feedPages.inc({ kind: 'full' in page ? 'full' : 'changes' });
  return page;
}

function head({ identity, clock, closing, drain, seats, seatLog, book, modes }: CellCore, units: Units) {
  const { perSec, tokens } = book.intake;
  return {
    v: 1,
    cellId: identity.cellId,
    incarnation: identity.incarnation,
    at: Math.floor(clock.wallNow()),
    draining: closing() || drain.ordered,
    counts: {
      controls: seats.connected,
      seats: seatLog.seats,
      bookings: book.size,
      units: units.enforced,
      ceiling: book.ceiling,
    },
    intake: { perSec, burst: LIMITS.intakeBurst, tokens },
    flagsApplied: { generation: modes.generation, flags: modes.flags },
    admitModeEffective: modes.effective,
    admitModeRaw: modes.raw,
  };
}
