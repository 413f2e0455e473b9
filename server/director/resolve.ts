import { type ResolveReply, resolveRequest } from '../../contract/http.ts';
import { type Reply, type Request, readJson } from '../http.ts';
import type { Locate } from './locate.ts';
import type { Refusals } from './refusals.ts';

/** `POST /v1/resolve`: a phone with a resume token asks which cell serves its host now. */
export function createResolve(locate: Locate, refusals: Refusals): (request: Request) => Promise<Reply> {
  return async (request) => {
    const body = readJson(resolveRequest, request.body);
    if (!body) return refusals.refuse('resolve', { reason: 'invalid-request' });
    const result = await locate(body.relayHostId, body.resumeToken, 'resume', request.signal);
    if (!result.ok) return refusals.refuse('resolve', result.refusal);
    const { cellUrl, epoch, leaseExpiresAt } = result.located;
    const reply: ResolveReply = { v: 1, cellUrl, assignmentEpoch: epoch, leaseExpiresAt };
    return { status: 200, json: reply };
  };
}
