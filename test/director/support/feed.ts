import type { FeedChange, FeedLeaver, FeedPage, FeedSeat } from '../../../contract/seat-feed.ts';
import type { HostName } from '../../../server/director/seat-view.ts';

/** Pages of a cell's feed, as the contract reads them. */

export function hostOf(n: number): HostName {
  return { userId: `user-${n}`, relayHostId: `host-${String(n).padStart(11, '0')}` };
}

export function seatOf(host: HostName, epoch: number, more: Partial<FeedSeat> = {}): FeedSeat {
  return { ...host, epoch, generation: 1, state: 'active', joinedAt: 1_000, ...more };
}

export function changeOf(
  seq: number,
  kind: string,
  host: HostName,
  epoch: number,
  more: Partial<FeedChange> = {},
): FeedChange {
  return { seq, kind, ...host, epoch, generation: kind === 'reserve' ? 0 : 1, at: 10_000 + seq, ...more };
}

type Head = Partial<Omit<FeedPage, 'full' | 'recentlyLeft' | 'changes' | 'more'>>;

function head(cellId: string, seats: number, more: Head) {
  return {
    v: 1 as const,
    cellId,
    incarnation: `${cellId}-1`,
    at: 20_000,
    draining: false,
    counts: { controls: seats, seats },
    seq: 0,
    ...more,
  };
}

export function fullPage(
  cellId: string,
  full: FeedSeat[],
  more: Head & { recentlyLeft?: FeedLeaver[] } = {},
): FeedPage {
  return { ...head(cellId, full.length, more), full, recentlyLeft: more.recentlyLeft ?? [] };
}

export function changesPage(cellId: string, changes: FeedChange[], more: Head & { more?: boolean } = {}): FeedPage {
  const seq = changes.at(-1)?.seq ?? 0;
  return { ...head(cellId, 0, { seq, ...more }), changes, more: more.more ?? false };
}
