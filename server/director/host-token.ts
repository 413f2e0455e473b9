import { base64 } from '@scure/base';
import { deriveRelayHostId } from '../../contract/host-proof.ts';
import { hostTokenRequest } from '../../contract/http.ts';
import { type Reply, type Request, readJson } from '../http.ts';
import type { RoleContext } from '../role-part.ts';
import { bearerToken, secretEquals, signHostToken } from '../tokens.ts';
import type { Refusals } from './refusals.ts';

/** `POST /v1/host-token`: a self-hosted desktop trades the self-hosting key for a relay token (wire 1.9). */

export function createHostToken(
  { clock, config, origin }: RoleContext,
  refusals: Refusals,
): (request: Request) => Promise<Reply> {
  return async (request) => {
    if (config.selfHostedKey === null) return refusals.refuse('host-token', { reason: 'not-configured' });
    const key = bearerToken(request.header('authorization'));
    if (!key || !secretEquals(config.selfHostedKey, key)) {
      return refusals.refuse('host-token', { reason: 'invalid-token' });
    }
    const body = readJson(hostTokenRequest, request.body);
    if (!body) return refusals.refuse('host-token', { reason: 'invalid-request' });
    if (deriveRelayHostId(base64.decode(body.hostPublicKeyB64)) !== body.relayHostId) {
      return refusals.refuse('host-token', { reason: 'identity-mismatch' });
    }
    const host = { profileId: origin(), relayHostId: body.relayHostId };
    const token = await signHostToken(config.signingKey, host, clock);
    return { status: 200, json: token, headers: { 'cache-control': 'no-store' } };
  };
}
