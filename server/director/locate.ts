import { hashToken } from '../../contract/credentials.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import type { Database } from '../database.ts';
import type { RequestedBy, ResolveResult } from '../sql-interface.ts';
import { type Desk, unleasedUntil } from './desk.ts';
import { hostKey, refusalOf, seatOf } from './outcomes.ts';
import type { Owner, RowReading } from './owner-lookup.ts';
import type { Owners } from './owners.ts';
import type { Refusal } from './refusals.ts';

/**
 * Where the host of a phone is. The credential is checked first and in Postgres; then the host's owner is looked up, since the
 * row may trail the seat. A host that has no live owner gets a cell, by the rules that hold for a caller who is not the host
 * (03, assign): asked for once, and whatever comes of it the phone hears.
 */

const CALL_TIMEOUT_MS = 3_000;

export type CredentialKind = 'resume' | 'invite';

export interface Located {
  cellUrl: string;
  epoch: number;
  /** Epoch milliseconds. */
  leaseExpiresAt: number;
}

export type LocateResult = { ok: true; located: Located } | { ok: false; refusal: Refusal };
export type Locate = (
  relayHostId: string,
  token: string,
  kind: CredentialKind,
  signal: AbortSignal,
) => Promise<LocateResult>;

const REQUESTED_BY: Record<CredentialKind, RequestedBy> = { resume: 'resolve', invite: 'invite' };

export interface LocateParts {
  clock: Clock;
  db: Pick<Database, 'call'>;
  desk: Desk;
  owners: Owners;
}

export function createLocate({ clock, db, desk, owners }: LocateParts): Locate {
  async function seatUnseated(relayHostId: string, userId: string, kind: CredentialKind): Promise<LocateResult> {
    // One place is enough: the host's own ask, if it waits, would find the same.
    desk.lanes.placement.supersede(hostKey(userId, relayHostId));
    const result = await desk.assign({
      user_id: userId,
      relay_host_id: relayHostId,
      requested_by: REQUESTED_BY[kind],
      place: true,
    });
    if (result.outcome !== 'granted') return { ok: false, refusal: refusalOf(desk, result, 'resolve') };
    const { cellUrl, epoch } = seatOf(result);
    const leaseExpiresAt = result.lease_expires_at ?? unleasedUntil(clock);
    return { ok: true, located: { cellUrl, epoch, leaseExpiresAt } };
  }

  async function look(relayHostId: string, token: string, kind: CredentialKind): Promise<LocateResult> {
    const found = await db.call(
      'resolve',
      { relay_host_id: relayHostId, credential_hash: hashToken(token), credential_kind: kind },
      { timeoutMs: CALL_TIMEOUT_MS },
    );
    if (found.outcome === 'invalid_credential') {
      return { ok: false, refusal: { reason: 'invalid-credential', lane: 'resolve' } };
    }
    if (found.user_id === null) throw new Error('resolve found a credential without its owner');
    const verdict = owners.judge({ userId: found.user_id, relayHostId }, rowOf(found));
    const step = owners.phoneStep(verdict);
    if (step === 'assign') return seatUnseated(relayHostId, found.user_id, kind);
    const located = step === 'serve' && 'owner' in verdict ? serve(verdict.owner, found) : null;
    return located === null ? { ok: false, refusal: unknownOwner(desk) } : { ok: true, located };
  }

  /** Null when the owner is a cell that this director has yet to hear of. */
  function serve({ cellId, epoch }: Owner, found: ResolveResult): Located | null {
    if (found.outcome === 'seated' && found.cell_id === cellId && found.epoch === epoch) return seated(found, clock);
    const cellUrl = owners.cell(cellId)?.url;
    return cellUrl === undefined ? null : { cellUrl, epoch, leaseExpiresAt: unleasedUntil(clock) };
  }

  return async (relayHostId, token, kind, signal) => {
    const answered = await desk.inLane('resolve', null, signal, () => look(relayHostId, token, kind));
    if (answered.ok) return answered.value;
    const { refusal } = answered;
    return {
      ok: false,
      refusal: refusal.reason === 'database' ? { ...refusal, reason: 'store-unavailable' } : refusal,
    };
  };
}

function rowOf({ outcome, cell_id: cellId, epoch }: ResolveResult): RowReading {
  return cellId === null || epoch === null ? 'none' : { cellId, epoch, live: outcome === 'seated' };
}

/** The next poll of the cells may know it. */
function unknownOwner(desk: Desk): Refusal {
  return { reason: 'owner-unknown', lane: 'resolve', retryAfterMs: desk.lanes.resolve.promise(LIMITS.feedPollMs) };
}

function seated(found: ResolveResult, clock: Clock): Located {
  const { cell_url: cellUrl, epoch } = found;
  if (cellUrl === null || epoch === null) throw new Error('resolve found a seat without a cell');
  return { cellUrl, epoch, leaseExpiresAt: found.lease_expires_at ?? unleasedUntil(clock) };
}
