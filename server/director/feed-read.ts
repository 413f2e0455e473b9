import { LIMITS } from '../../contract/limits.ts';
import type { FeedChange, FeedCursor, FeedPage } from '../../contract/seat-feed.ts';
import type { FeedFailure } from './feed-outcomes.ts';

/**
 * Puts the pages of one refresh together. Nothing of it is used before its last page has come (F4): either every seat at once,
 * or the changes from the cursor to the head without a hole.
 */

export type FullPage = Extract<FeedPage, { full: unknown }>;

/** `head` is the last page read: what the cell says of itself. */
export type CompleteRead =
  | { kind: 'full'; head: FullPage }
  | { kind: 'changes'; head: FeedPage; changes: readonly FeedChange[]; seq: number };

export type PageStep =
  | { step: 'more'; cursor: FeedCursor }
  | { step: 'complete'; read: CompleteRead }
  | { step: 'failed'; failure: FeedFailure };

export class FeedRead {
  readonly #cellId: string;
  readonly #cursor: FeedCursor | null;
  readonly #changes: FeedChange[] = [];
  #pages = 0;
  #seq: number;

  /** @param cursor where the reader stands; null asks for everything. */
  constructor(cellId: string, cursor: FeedCursor | null) {
    this.#cellId = cellId;
    this.#cursor = cursor;
    this.#seq = cursor?.seq ?? 0;
  }

  take(page: FeedPage): PageStep {
    if (page.cellId !== this.#cellId) return { step: 'failed', failure: 'cell_id_mismatch' };
    if ('full' in page) return { step: 'complete', read: { kind: 'full', head: page } };
    if (this.#cursor === null || page.incarnation !== this.#cursor.incarnation) return GAP;
    for (const change of page.changes) {
      if (change.seq !== this.#seq + 1) return GAP;
      this.#seq = change.seq;
      this.#changes.push(change);
    }
    if (page.seq < this.#seq) return GAP;
    const more = page.more || page.seq > this.#seq;
    if (!more) {
      return { step: 'complete', read: { kind: 'changes', head: page, changes: this.#changes, seq: this.#seq } };
    }
    // A page that says there is more and brings nothing would be asked for ever.
    if (page.changes.length === 0) return GAP;
    this.#pages += 1;
    if (this.#pages >= LIMITS.feedPagesAPoll) return { step: 'failed', failure: 'too_far_behind' };
    return { step: 'more', cursor: { incarnation: this.#cursor.incarnation, seq: this.#seq } };
  }
}

const GAP: PageStep = { step: 'failed', failure: 'cursor_gap' };
