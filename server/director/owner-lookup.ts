import type { PendingMove } from './pending-moves.ts';
import type { OwnerEntry } from './seat-view.ts';

/**
 * Who serves a host now (ownership F5, F7, F8): pending, then fresh, retained and Postgres, and the highest epoch wins. The
 * row trails the seat while the ledger has yet to write, and leads it after a move of the database's own.
 */

export type OwnerSource = 'pending' | 'fresh' | 'retained' | 'row';

export interface Owner {
  cellId: string;
  epoch: number;
  /** The first in the order of the look-up that names this seat. */
  source: OwnerSource;
  /** Since it was committed or read; 0 of a row just read. */
  ageMs: number;
  /** False: the row names a cell that is not live, and no feed shows the host on it right now. */
  live: boolean;
}

export interface HostRowRead {
  cellId: string;
  epoch: number;
  /** Ready and heard of lately. */
  live: boolean;
}

/** What the row of a host said. `none`: Postgres answered, and there is none. */
export type RowReading = HostRowRead | 'none' | 'unavailable';

export interface OwnerEvidence {
  pending: PendingMove | null;
  entry: OwnerEntry | null;
  row: RowReading;
  /** The highest epoch that this director ever heard of: proof against the map where no row is at hand. */
  floor: number;
}

/** `row_missing` is no absence in reserve mode (F8); `row_trails`: nor in any, for the host was heard of. */
export type Unknown = 'row_missing' | 'row_trails' | 'store_unavailable';
export type OwnerVerdict = { owner: Owner } | { unknown: Unknown };

/**
 * Of several that claim the same epoch, on whose word to rely. The first row of an epoch wins over every other seat (P2); a
 * host that is seen somewhere is not where it was only promised a seat.
 */
const TRUST = { row: 3, announced: 2, seated: 1, promised: 0 } as const;

interface Claim extends Owner {
  trust: number;
}

export function ownerOf({ pending, entry, row, floor }: OwnerEvidence): OwnerVerdict {
  const claims = [pendingClaim(pending), seatClaim(entry), rowClaim(row)].filter((claim) => claim !== null);
  const [best] = claims.toSorted((a, b) => b.epoch - a.epoch || b.trust - a.trust);
  if (best === undefined && row === 'unavailable') return { unknown: 'store_unavailable' };
  if (best === undefined) return { unknown: floor > 0 ? 'row_trails' : 'row_missing' };
  if (row === 'unavailable' && best.epoch < floor) return { unknown: 'store_unavailable' };
  const same = claims.filter(({ cellId, epoch }) => cellId === best.cellId && epoch === best.epoch);
  const { cellId, epoch, source, ageMs } = same[0] as Claim;
  const live = same.some((claim) => claim.source === 'fresh') || same.every((claim) => claim.live);
  return { owner: { cellId, epoch, source, ageMs, live } };
}

function pendingClaim(pending: PendingMove | null): Claim | null {
  if (pending === null) return null;
  const { cellId, epoch, ageMs } = pending;
  const trust = pending.source === 'change' ? TRUST.announced : TRUST.promised;
  return { cellId, epoch, ageMs, source: 'pending', live: true, trust };
}

function seatClaim(entry: OwnerEntry | null): Claim | null {
  if (entry === null) return null;
  const { cellId, epoch, ageMs, freshness } = entry;
  return { cellId, epoch, ageMs, source: freshness, live: true, trust: TRUST.seated };
}

function rowClaim(row: RowReading): Claim | null {
  if (typeof row === 'string') return null;
  return { ...row, ageMs: 0, source: 'row', trust: TRUST.row };
}

/** What a director does for a phone whose credential is good. */
export type PhoneStep =
  /** Send it to the owner. */
  | 'serve'
  /** No live cell: `assign` says, as for any caller who is not the host. */
  | 'assign'
  /** A seat may be somewhere that this director has not read yet: nothing is placed over it. */
  | 'wait';

/**
 * @param mapComplete every cell that matters has answered this director once
 * @param reserve some cell seats hosts that have no row yet
 */
export function phoneStep(verdict: OwnerVerdict, mapComplete: boolean, reserve: boolean): PhoneStep {
  if ('owner' in verdict && verdict.owner.live) return 'serve';
  if ('unknown' in verdict && verdict.unknown === 'row_trails') return 'wait';
  return reserve && !mapComplete ? 'wait' : 'assign';
}
