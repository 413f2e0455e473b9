import { type AssignReply, type AssignRequest, assignRequest } from '../../contract/http.ts';
import { type Reply, type Request, readJson } from '../http.ts';
import { hostDigest } from '../log.ts';
import type { RoleContext } from '../role-part.ts';
import type { AssignResult } from '../sql-interface.ts';
import {
  bearerToken,
  type HostIdentity,
  KeysUnavailableError,
  type RelayTokenVerifier,
  signAssignmentLease,
} from '../tokens.ts';
import type { Desk } from './desk.ts';
import type { LaneName } from './lanes.ts';
import { hostKey, refusalOf, seatOf } from './outcomes.ts';
import type { Refusal, Refusals } from './refusals.ts';

/** `POST /v1/assign`: which cell serves this host. One SQL call; a second only to place (01, how data flows). */

const KEYS_RETRY_MS = 2_000;

export interface AssignParts {
  context: RoleContext;
  desk: Desk;
  refusals: Refusals;
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

type Decision = { refusal: Refusal } | { granted: AssignResult; lane: LaneName };

export function createAssign(parts: AssignParts): (request: Request) => Promise<Reply> {
  const { context, desk, refusals } = parts;
  return async (request) => {
    if (!context.config.publicAssignmentsEnabled) {
      const retryAfterMs = desk.lanes.placement.promise();
      return refusals.refuse('assign', { reason: 'disabled', lane: 'placement', retryAfterMs });
    }
    const ask = await readAsk(parts, request);
    if ('refusal' in ask) return refusals.refuse('assign', ask.refusal);
    const decision = isReport(ask) ? await currentAssignment(desk, ask) : await pacedDecision(parts, ask);
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
async function pacedDecision({ context, desk }: AssignParts, ask: Ask): Promise<Decision> {
  const pace = desk.pacing.begin(ask.host);
  if (!pace.ok) return { refusal: { reason: pace.reason, retryAfterMs: pace.retryAfterMs } };
  let grantedIn: LaneName | undefined;
  try {
    const decision = await decide(desk, ask);
    if ('granted' in decision) grantedIn = decision.lane;
    return decision;
  } finally {
    const lane = grantedIn === 'placement' ? context.config.lanes.placement : context.config.lanes.sticky;
    pace.end(grantedIn === undefined ? undefined : lane.retryAfterSeconds * 1_000);
  }
}

/** Sticky first; who needs a place goes on to the placement lane. */
async function decide(desk: Desk, ask: Ask): Promise<Decision> {
  const kept = await askIn(desk, 'sticky', ask, { requested_by: 'host', place: false });
  if ('refusal' in kept || kept.result.outcome !== 'would_place') return settle(desk, kept);
  return settle(desk, await askIn(desk, 'placement', ask, { requested_by: 'host', place: true }));
}

/** For a region report, which never moves a host: what the row says, read without granting a lease (wire 1.10). */
async function currentAssignment(desk: Desk, ask: Ask): Promise<Decision> {
  const read = await askIn(desk, 'sticky', ask, { requested_by: 'resolve', place: false });
  if (!('refusal' in read) && read.result.outcome === 'would_place') return { refusal: { reason: 'no-assignment' } };
  return settle(desk, read);
}

type Asked = { refusal: Refusal } | { result: AssignResult; lane: LaneName };

async function askIn(
  desk: Desk,
  lane: LaneName,
  ask: Ask,
  how: { requested_by: 'host' | 'resolve'; place: boolean },
): Promise<Asked> {
  const preferred = isReport(ask) ? undefined : ask.request.preferredRegion;
  const answered = await desk.inLane(lane, ask.host, ask.signal, () =>
    desk.assign({
      user_id: ask.identity.userId,
      relay_host_id: ask.identity.relayHostId,
      preferred_region: preferred ?? null,
      ...how,
    }),
  );
  return answered.ok ? { result: answered.value, lane } : answered;
}

function settle(desk: Desk, asked: Asked): Decision {
  if ('refusal' in asked) return asked;
  const { result, lane } = asked;
  if (result.outcome === 'granted') return { granted: result, lane };
  return { refusal: refusalOf(desk, result, lane) };
}

async function grant(
  { context }: AssignParts,
  ask: Ask,
  { granted, lane }: { granted: AssignResult; lane: LaneName },
): Promise<Reply> {
  const { cellId, cellUrl, epoch } = seatOf(granted);
  const { userId, relayHostId } = ask.identity;
  const lease = { userId, relayHostId, cellId, cellUrl, epoch };
  context.log[granted.moved ? 'info' : 'debug']({
    event: 'orca_relay_assignment_granted',
    host: ask.digest,
    lane,
    rule: granted.rule,
    cell: cellId,
    epoch,
    hinted: ask.request.reconnect ?? false,
    ...(granted.moved ? { from: granted.from_cell_id } : {}),
  });
  const reply: AssignReply = {
    v: 1,
    cellUrl,
    assignmentEpoch: epoch,
    lease: await signAssignmentLease(context.config.signingKey, context.origin(), lease, context.clock),
  };
  return { status: 200, json: reply };
}

function isReport(ask: Ask): boolean {
  return ask.request.regionCorrection?.action === 'report';
}
