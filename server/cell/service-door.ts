import { type Handler, type Method, type Reply, type Request, type RouteOptions, route } from '../http.ts';
import type { ServiceIdentity } from '../service-token.ts';
import { bearerToken } from '../tokens.ts';
import type { App } from '../uws.ts';
import type { CellCore } from './cell-core.ts';

export type ServiceHandler = (request: Request, caller: ServiceIdentity) => Reply;

/** What a request that a director got wrong is answered. */
export const INVALID_REQUEST: Reply = { status: 400, json: { error: 'invalid_request' } };

/**
 * Serves `path` to directors alone: whoever shows no service token for this very cell is answered 401 `invalid_token`, before
 * anything that it says is read. Answered in one turn of the loop from there on, so that what a handler decides it decides
 * about the cell as it is.
 */
export function serviceRoute(
  app: App,
  method: Method,
  path: string,
  core: Pick<CellCore, 'serviceCaller' | 'metrics'>,
  handler: ServiceHandler,
  options?: RouteOptions,
): void {
  const answer: Handler = async (request) => {
    const token = bearerToken(request.header('authorization'));
    const caller = token === null ? null : await core.serviceCaller(token);
    const reply = caller === null ? { status: 401, json: { error: 'invalid_token' } } : handler(request, caller);
    core.metrics.serviceRequests.inc({ path, status: String(reply.status) });
    return reply;
  };
  route(app, method, path, answer, options);
}
