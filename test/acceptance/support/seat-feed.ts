import { type FeedPage, feedPage, writeFeedCursor } from '../../../contract/seat-feed.ts';
import { cellAudience, signServiceToken } from '../../../server/service-token.ts';
import type { Fleet, Node } from './fleet.ts';

export type FullPage = Extract<FeedPage, { full: unknown }>;
export type ChangesPage = Extract<FeedPage, { changes: unknown }>;

/** What a director shows to a cell. */
export function directorToken(fleet: Fleet, cell: Node, caller = 'a-director'): Promise<string> {
  return signServiceToken(fleet.signingKey, { caller, role: 'director', audience: cellAudience(cell.id) }, fleet.clock);
}

/** One page as a director gets it; throws for anything but a page as the wire has it. */
export async function readFeed(fleet: Fleet, cell: Node, query = ''): Promise<FeedPage> {
  const reply = await fetch(`${cell.origin}/v1/admin/cell-seats${query}`, {
    headers: { authorization: `Bearer ${await directorToken(fleet, cell)}` },
    signal: AbortSignal.timeout(40_000),
  });
  if (reply.status !== 200) throw new Error(`the feed answered ${reply.status} ${await reply.text()}`);
  return feedPage.parse(await reply.json());
}

export async function readFull(fleet: Fleet, cell: Node): Promise<FullPage> {
  const page = await readFeed(fleet, cell);
  if (!('full' in page)) throw new Error('changes came without a cursor');
  return page;
}

/** What has happened since a page. */
export async function readSince(fleet: Fleet, cell: Node, { incarnation, seq }: FeedPage): Promise<ChangesPage> {
  const page = await readFeed(fleet, cell, `?since=${writeFeedCursor({ incarnation, seq })}`);
  if (!('changes' in page)) throw new Error('a full snapshot came instead of changes');
  return page;
}
