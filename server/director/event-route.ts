import { eventStreamRoute } from '../event-stream.ts';
import { browserRefusal } from '../readers.ts';
import type { RoleContext } from '../role-part.ts';
import type { App } from '../uws.ts';
import type { EventFeed } from './event-feed.ts';

/** `GET /v1/admin/events`: what happens, as it happens (`contract/events.ts`). */

const FULL_RETRY_SECONDS = 10;

export function registerEvents(app: App, { clock, config }: RoleContext, feed: EventFeed): void {
  eventStreamRoute(
    app,
    '/v1/admin/events',
    {
      accept(request) {
        const reason = browserRefusal(config.metricsKey, request) ?? (feed.full ? 'full' : null);
        if (reason === null) return null;
        feed.refused(reason);
        if (reason === 'full') {
          const headers = { 'retry-after': String(FULL_RETRY_SECONDS) };
          return { status: 503, json: { error: 'too_many_readers' }, headers };
        }
        return { status: reason === 'unauthorized' ? 401 : 403, json: { error: reason } };
      },
      opened: (stream, request) => feed.watch(stream, request.header('last-event-id')),
      ended: (stream, end) => feed.leave(stream, end),
    },
    clock,
  );
}
