import type { FeedPage } from '../../contract/seat-feed.ts';
import type { HostName } from '../../server/director/seat-view.ts';

/** Hosts and pages of a fleet's size, with names as long as real ones. */

export function benchHost(n: number): HostName {
  const tail = n.toString(16).padStart(12, '0');
  return { userId: `5e8f0c1a-77aa-4bbb-8ccc-${tail}`, relayHostId: `host-${String(n).padStart(11, '0')}` };
}

export function fullPageOf(cellId: string, seated: readonly number[], left: readonly number[]): FeedPage {
  const at = Date.now();
  const epochOf = (n: number) => 1 + (n % 50);
  return {
    v: 1,
    cellId,
    incarnation: `${cellId}-process`,
    at,
    draining: false,
    counts: { controls: seated.length, seats: seated.length },
    seq: 0,
    full: seated.map((n) => ({
      ...benchHost(n),
      epoch: epochOf(n),
      generation: 1 + (n % 9),
      state: 'active' as const,
      joinedAt: at - n,
    })),
    recentlyLeft: left.map((n) => ({ ...benchHost(n), epoch: epochOf(n), closeCode: 1006, at: at - n })),
  };
}
