import { type AssignReply, type AssignRequest, assignRequest } from '../../contract/http.ts';
import { type Reply, type Request, readJson } from '../http.ts';
import { hostDigest } from '../log.ts';
import type { RoleContext } from '../role-part.ts';
import {
  bearerToken,
  type HostIdentity,
  KeysUnavailableError,
  type RelayTokenVerifier,
  signAssignmentLease,
} from '../tokens.ts';
import type { Desk } from './desk.ts';
import { currentPlace, type Decision, findPlace, type Grant } from './find-place.ts';
import type { LaneName } from './lanes.ts';
import { hostKey } from './outcomes.ts';
import type { Refusal, Refusals } from './refusals.ts';
import type { ReserveAsk, ReserveAssign } from './reserve-assign.ts';
import type { SilentHomes } from './silent-homes.ts';

/**
 * `POST /v1/assign`: which cell serves this host. In reserve mode from memory or by a booking, if the plan finds a place;
 * else one SQL call, and a second only to place (01, how data flows).
 */

const KEYS_RETRY_MS = 2_000;

export interface AssignParts {
  context: RoleContext;
  desk: Desk;
  refusals: Refusals;
  reserve: ReserveAssign;
  silentHomes: SilentHomes;
  tokens: RelayTokenVerifier;
}

interface Ask {
  identity: HostIdentity;
  /** Names the host within this process; never logged. */
  host: string;
  digest: string;
  request: AssignRequest;
  signal: AbortSignal;
}

export function createAssign(parts: AssignParts): (request: Request) => Promise<Reply> {
  const { context, desk, refusals } = parts;
  return async (request) => {
    if (!context.config.publicAssignmentsEnabled) {
      const retryAfterMs = desk.lanes.placement.promise();
      return refusals.refuse('assign', { reason: 'disabled', lane: 'placement', retryAfterMs });
    }
    const ask = await readAsk(parts, request);
    if ('refusal' in ask) return refusals.refuse('assign', ask.refusal);
    const decision = isReport(ask) ? await currentPlace(desk, reserveAsk(ask)) : await pacedDecision(parts, ask);
    if ('refusal' in decision) return refusals.refuse('assign', decision.refusal, ask.digest);
    return grant(parts, ask, decision);
  };
}

async function readAsk(parts: AssignParts, request: Request): Promise<Ask | { refusal: Refusal }> {
  // Taken before the first wait: one made after the peer hung up would never abort.
  const { signal } = request;
  const identity = await authenticate(parts.tokens, request.header('authorization'));
  if ('refusal' in identity) return identity;
  const body = readJson(assignRequest, request.body);
  if (!body) return { refusal: { reason: 'invalid-request' } };
  if (body.relayHostId !== identity.relayHostId) return { refusal: { reason: 'identity-mismatch' } };
  return {
    identity,
    host: hostKey(identity.userId, identity.relayHostId),
    digest: hostDigest(identity.userId, identity.relayHostId),
    request: body,
    signal,
  };
}

async function authenticate(
  tokens: RelayTokenVerifier,
  header: string | undefined,
): Promise<HostIdentity | { refusal: Refusal }> {
  const token = bearerToken(header);
  try {
    const identity = token ? await tokens.verify(token) : null;
    return identity ?? { refusal: { reason: 'invalid-token' } };
  } catch (error) {
    if (!(error instanceof KeysUnavailableError)) throw error;
    return { refusal: { reason: 'keys-unavailable', retryAfterMs: KEYS_RETRY_MS, cause: error.reason } };
  }
}

/** One ask at a time, and none too soon after a grant: the interval is that of the lane that granted. */
async function pacedDecision({ context, desk, reserve, silentHomes }: AssignParts, ask: Ask): Promise<Decision> {
  const pace = desk.pacing.begin(ask.host);
  if (!pace.ok) return { refusal: { reason: pace.reason, retryAfterMs: pace.retryAfterMs } };
  let grantedIn: LaneName | undefined;
  try {
    const decision = silentHomes.temper(ask.host, await findPlace(desk, reserve, reserveAsk(ask)));
    if ('granted' in decision) grantedIn = decision.granted.lane;
    return decision;
  } finally {
    const lane = grantedIn === 'placement' ? context.config.lanes.placement : context.config.lanes.sticky;
    pace.end(grantedIn === undefined ? undefined : lane.retryAfterSeconds * 1_000);
  }
}

async function grant(
  { context }: AssignParts,
  ask: Ask,
  { granted: { seat, lane, rule, from } }: { granted: Grant },
): Promise<Reply> {
  const { cellId, cellUrl, epoch } = seat;
  const { userId, relayHostId } = ask.identity;
  const lease = { userId, relayHostId, cellId, cellUrl, epoch };
  context.log[from === undefined ? 'debug' : 'info']({
    event: 'orca_relay_assignment_granted',
    host: ask.digest,
    lane,
    rule,
    cell: cellId,
    epoch,
    hinted: ask.request.reconnect ?? false,
    ...(from === undefined ? {} : { from }),
  });
  const reply: AssignReply = {
    v: 1,
    cellUrl,
    assignmentEpoch: epoch,
    lease: await signAssignmentLease(context.config.signingKey, context.origin(), lease, context.clock),
  };
  return { status: 200, json: reply };
}

function reserveAsk({ identity, request, signal }: Ask): ReserveAsk {
  return { host: identity, region: request.preferredRegion ?? null, signal };
}

function isReport(ask: Ask): boolean {
  return ask.request.regionCorrection?.action === 'report';
}
