import { readFileSync } from 'node:fs';
import path from 'node:path';
import { eventStreamRoute } from '../event-stream.ts';
import { type Reply, type Request, route } from '../http.ts';
import { packageRoot } from '../package-root.ts';
import { browserRefusal, type ReaderRefusal } from '../readers.ts';
import type { RoleContext } from '../role-part.ts';
import { secretEquals } from '../tokens.ts';
import type { App } from '../uws.ts';
import type { FleetFeed } from './fleet-feed.ts';
import { holdsPass, passCookie } from './fleet-pass.ts';

/**
 * The fleet at a glance, for people: one page and the stream that feeds it. Who may read the metrics may see it. It shows
 * hosts by digest, and takes no command.
 */

const FILES = {
  '/fleet/page.css': ['page.css', 'text/css; charset=utf-8'],
  '/fleet/page.js': ['page.js', 'text/javascript; charset=utf-8'],
  '/fleet/show.js': ['show.js', 'text/javascript; charset=utf-8'],
  '/fleet/icon.svg': ['icon.svg', 'image/svg+xml'],
} as const;

const SECURITY = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
} as const;
const HTML = { ...SECURITY, 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' };

const LOOPBACK_ONLY =
  'The fleet page is for browsers on this machine: open it through a tunnel ' +
  '(ssh -L 8080:127.0.0.1:8080 …), or set ORCA_RELAY_METRICS_KEY.\n';

type Asked = Pick<Request, 'header' | 'remoteAddress'>;

export function registerFleetPage(app: App, context: RoleContext, feed: FleetFeed): void {
  const { clock, config } = context;
  const page = readPageFile('page.html');
  const signIn = readPageFile('sign-in.html');

  const refusal = (request: Asked): ReaderRefusal | null => {
    const refused = browserRefusal(config.metricsKey, request);
    if (config.metricsKey === null) return refused;
    return refused !== null && holdsPass(config.metricsKey, request.header('cookie'), clock.wallNow()) ? null : refused;
  };
  const refuse = (reason: ReaderRefusal | 'full', reply: Reply): Reply => {
    feed.refused(reason);
    return reply;
  };

  route(app, 'get', '/fleet', (request) => {
    switch (refusal(request)) {
      case null:
        return { status: 200, text: page, headers: HTML };
      case 'loopback_only':
        return refuse('loopback_only', { status: 403, text: LOOPBACK_ONLY, headers: SECURITY });
      case 'unauthorized':
        return { status: 401, text: signIn.replace('{{problem}}', ''), headers: HTML };
    }
  });
  route(app, 'post', '/fleet', (request) => {
    if (config.metricsKey === null) return { status: 404, json: { error: 'not_found' } };
    const given = new URLSearchParams(request.body?.toString('utf8')).get('key') ?? '';
    if (!secretEquals(config.metricsKey, given.trim())) {
      const text = signIn.replace('{{problem}}', '<p role="alert">That is not the key.</p>');
      return refuse('unauthorized', { status: 401, text, headers: HTML });
    }
    const cookie = passCookie(config.metricsKey, clock.wallNow(), context.origin().startsWith('https:'));
    return { status: 303, text: '', headers: { ...SECURITY, location: '/fleet', 'set-cookie': cookie } };
  });
  for (const [path, [name, type]] of Object.entries(FILES)) {
    const text = readPageFile(name);
    const headers = { ...SECURITY, 'content-type': type, 'cache-control': 'no-cache' };
    route(app, 'get', path, () => ({ status: 200, text, headers }));
  }
  eventStreamRoute(
    app,
    '/fleet/events',
    {
      accept(request) {
        const reason = refusal(request);
        if (reason !== null) {
          return refuse(reason, { status: reason === 'unauthorized' ? 401 : 403, json: { error: reason } });
        }
        if (!feed.full) return null;
        return refuse('full', { status: 503, json: { error: 'too_many_watchers' }, headers: { 'retry-after': '10' } });
      },
      opened: (stream) => feed.watch(stream),
      ended: (stream, end) => feed.leave(stream, end),
    },
    clock,
    SECURITY,
  );
}

/** Beside this file, in the sources and in what is built of them. */
function readPageFile(name: string): string {
  return readFileSync(path.join(packageRoot, 'server/director/fleet-page', name), 'utf8');
}
