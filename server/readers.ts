import type { Request } from './http.ts';
import { secretEquals } from './tokens.ts';

/** Who may read what a process says of itself: the bearer of the metrics key or, without one, this machine (01). */

export type ReaderRefusal = 'loopback_only' | 'unauthorized';
type Asked = Pick<Request, 'header' | 'remoteAddress'>;

const LOOPBACK = /^(?:127\.|::1$|(?:0{4}:){7}0{3}1$)/;

/** A proxy on this machine makes every caller look local, so a forwarded request never counts as one. */
function isLocal(request: Asked): boolean {
  return LOOPBACK.test(request.remoteAddress) && request.header('x-forwarded-for') === undefined;
}

/** @param metricsKey null: none is configured */
export function readerRefusal(metricsKey: string | null, request: Asked): ReaderRefusal | null {
  if (metricsKey === null) return isLocal(request) ? null : 'loopback_only';
  const given = /^Bearer (\S+)$/.exec(request.header('authorization') ?? '')?.[1] ?? '';
  return secretEquals(metricsKey, given) ? null : 'unauthorized';
}

/** A name that resolves to this machine lets any web site's script read what only this machine may. */
const LOCAL_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?$/i;

/** The same for what a browser may be made to ask for. */
export function browserRefusal(metricsKey: string | null, request: Asked): ReaderRefusal | null {
  const refused = readerRefusal(metricsKey, request);
  if (metricsKey !== null || refused !== null) return refused;
  return LOCAL_HOST.test(request.header('host') ?? '') ? null : 'loopback_only';
}
