import { hashToken } from '../../contract/credentials.ts';
import type { Clock } from '../clock.ts';
import type { Database } from '../database.ts';
import type { RequestedBy, ResolveResult } from '../sql-interface.ts';
import { type Desk, unleasedUntil } from './desk.ts';
import { hostKey, refusalOf, seatOf } from './outcomes.ts';
import type { Refusal } from './refusals.ts';

/**
 * Where the host of a phone is. The credential is checked first and in Postgres; a valid one whose host has no live cell
 * gets it one, by the rules that hold for a caller who is not the host (03, assign).
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

export function createLocate(db: Pick<Database, 'call'>, desk: Desk, clock: Clock): Locate {
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
    if (found.outcome === 'seated') return { ok: true, located: seated(found, clock) };
    if (found.user_id === null) throw new Error('resolve found a credential without its owner');
    return seatUnseated(relayHostId, found.user_id, kind);
  }

  return async (relayHostId, token, kind, signal) => {
    const answered = await desk.inLane('resolve', null, signal, () => look(relayHostId, token, kind));
    return answered.ok ? answered.value : answered;
  };
}

function seated(found: ResolveResult, clock: Clock): Located {
  const { cell_url: cellUrl, epoch } = found;
  if (cellUrl === null || epoch === null) throw new Error('resolve found a seat without a cell');
  return { cellUrl, epoch, leaseExpiresAt: found.lease_expires_at ?? unleasedUntil(clock) };
}
