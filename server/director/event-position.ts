import type { Change, ChangeCursor } from '../sql-interface.ts';

/**
 * How far a reader of the event stream has come in the change log, as the id of an event says it: the timeline, the highest
 * id, and the ids below it that were not there yet (`<timeline>-<id>[.<how far below>…]`). It holds at every director, since
 * all of them read the same log.
 */

/** More gaps than this are not written: the newest are, and the id says that it knows of more. */
const MAX_GAPS_WRITTEN = 64;
const MORE_GAPS = '!';
const EVENT_ID = /^(\d{1,10})-(\d{1,15})((?:\.\d{1,15}){0,64})(!?)$/;

export interface ReadPosition {
  cursor: ChangeCursor;
  /** False: late changes below the cursor may be missed. */
  exact: boolean;
}

export function writeEventId({ timeline, max_id, gaps }: ChangeCursor): string {
  const written = gaps.toSorted((a, b) => b - a).slice(0, MAX_GAPS_WRITTEN);
  const below = written.map((gap) => `.${max_id - gap}`).join('');
  return `${timeline}-${max_id}${below}${written.length < gaps.length ? MORE_GAPS : ''}`;
}

/** Null for text that is no id of ours. */
export function readEventId(text: string): ReadPosition | null {
  const [, timeline, id, below, more] = EVENT_ID.exec(text) ?? [];
  if (timeline === undefined || id === undefined) return null;
  const max_id = Number(id);
  const gaps = (below ?? '').split('.').flatMap((part) => (part === '' ? [] : [max_id - Number(part)]));
  return {
    cursor: { timeline: Number(timeline), max_id, gaps: gaps.filter((gap) => gap > 0 && gap < max_id) },
    exact: more !== MORE_GAPS,
  };
}

/** Whether what has come to a cursor includes this change, or never will. */
export function covers({ max_id, gaps }: ChangeCursor, id: number): boolean {
  return id <= max_id && !gaps.includes(id);
}

/** A cursor after one more change. */
export function advance(cursor: ChangeCursor, id: number): ChangeCursor {
  const { timeline, max_id } = cursor;
  if (id <= max_id) return { timeline, max_id, gaps: cursor.gaps.filter((gap) => gap !== id) };
  const skipped = Array.from({ length: id - max_id - 1 }, (_, index) => max_id + 1 + index);
  return { timeline, max_id: id, gaps: [...cursor.gaps, ...skipped] };
}

export interface CaughtUp {
  /** In order. */
  told: Change[];
  /** Where the reader is then. */
  cursor: ChangeCursor;
  /** It has exactly what the director's own stream has brought, and goes on with that. */
  live: boolean;
}

/**
 * What a page read for a reader that was away brings it towards the director's own stream, and no further: what the stream
 * has yet to bring comes with it.
 * @param before where the stream was when the page was asked for
 * @param now where it is
 */
export function catchUp(
  page: { cursor: ChangeCursor; changes: readonly Change[]; more: boolean },
  before: ChangeCursor,
  now: ChangeCursor,
): CaughtUp {
  const max_id = Math.min(page.cursor.max_id, now.max_id);
  // The stream had this id, or gave it up, before the page was read, and the page has it not: there is none.
  const open = page.cursor.gaps.filter((gap) => !covers(before, gap));
  const ahead = page.changes.flatMap(({ id }) => (covers(now, id) ? [] : [id]));
  const gaps = [...open, ...ahead].filter((gap) => gap <= max_id);
  return {
    told: page.changes.filter(({ id }) => covers(now, id)),
    cursor: { timeline: page.cursor.timeline, max_id, gaps },
    live: !page.more && page.cursor.max_id >= now.max_id && gaps.every((gap) => !covers(now, gap)),
  };
}
