import type { FeedChange, FeedCursor } from '../../../contract/seat-feed.ts';
import type { SeatPage } from '../../../server/cell/seat-log.ts';

export interface HeldSeat {
  epoch: number;
  generation: number;
  state: string;
  joinedAt: number;
}

/** A reader of one cell's feed that does what the rules of the feed ask of it, and no more. */
export class FeedReader {
  readonly seats = new Map<string, HeldSeat>();
  cursor: FeedCursor | null = null;

  apply(incarnation: string, page: SeatPage): void {
    if ('full' in page) {
      this.seats.clear();
      for (const { userId, relayHostId, ...seat } of page.full) this.seats.set(`${userId} ${relayHostId}`, seat);
      this.cursor = { incarnation, seq: page.seq };
      return;
    }
    for (const change of page.changes) this.#change(change);
  }

  #change(change: FeedChange): void {
    const cursor = this.cursor;
    if (cursor === null || change.seq !== cursor.seq + 1) throw new Error(`gap before ${change.seq}`);
    this.cursor = { ...cursor, seq: change.seq };
    const { epoch, generation, at: joinedAt } = change;
    const name = `${change.userId} ${change.relayHostId}`;
    const seat = this.seats.get(name);
    if (seat !== undefined && generation < seat.generation) return;
    if (change.kind === 'join') this.seats.set(name, { epoch, generation, state: change.state ?? '', joinedAt });
    else if (seat === undefined) return;
    else if (change.kind === 'leave') this.seats.delete(name);
    else if (change.kind === 'active' || change.kind === 'drain-only') seat.state = change.kind;
  }
}
