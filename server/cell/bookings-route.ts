import { type BookingOutcome, demoteRequest, type ReserveRequest, reserveRequest } from '../../contract/booking.ts';
import { LIMITS } from '../../contract/index.ts';
import { readJson } from '../http.ts';
import type { App } from '../uws.ts';
import type { CellCore } from './cell-core.ts';
import { demoteSeat } from './demotion.ts';
import { INVALID_REQUEST, serviceRoute } from './service-door.ts';

/** What directors ask of a reserve cell (`reserve-mode` 1.2): to keep seats, and to let go of one that is outranked. */
export function registerBookings(app: App, core: CellCore): void {
  serviceRoute(
    app,
    'post',
    '/internal/reserve',
    core,
    ({ body }) => {
      const request = readJson(reserveRequest, body);
      return request === null ? INVALID_REQUEST : { status: 200, json: { v: 1, results: book(core, request) } };
    },
    { maxBodyBytes: LIMITS.maxBookingRequestBytes },
  );
  serviceRoute(app, 'post', '/internal/demote', core, ({ body }) => {
    const request = readJson(demoteRequest, body);
    return request === null ? INVALID_REQUEST : { status: 200, json: { v: 1, outcome: demoteSeat(core, request) } };
  });
}

/** A real ask says that somebody places hosts here, whatever it is answered. */
function book(core: CellCore, request: ReserveRequest) {
  const { dryRun = false } = request;
  if (!dryRun) core.modes.contact();
  const results = core.book.take(request);
  const outcomes: Partial<Record<BookingOutcome, number>> = {};
  for (const { outcome } of results) {
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    core.metrics.bookings.inc({ run: dryRun ? 'dry' : 'real', outcome });
  }
  core.log.debug({ event: 'orca_relay_seats_booked', director: request.directorId, dryRun, outcomes });
  return results;
}
