import { LIMITS } from '../../contract/limits.ts';
import { type FeedCursor, type FeedPage, feedPage, writeFeedCursor } from '../../contract/seat-feed.ts';
import type { CellAddress } from './cell-post.ts';
import { type FeedFailure, failureOfStatus } from './feed-outcomes.ts';
import type { ServiceTokens } from './service-tokens.ts';

/** Asks a cell for one page of its feed. Every way it can end is an answer; it rejects only once `signal` aborts, if at all. */

export interface PageRequest {
  /** Null asks for every seat. */
  cursor: FeedCursor | null;
  /** Says that this director books seats there. */
  reserver: boolean;
}

export type PageReply = { ok: true; page: FeedPage } | { ok: false; failure: FeedFailure };

export type FetchPage = (cell: CellAddress, request: PageRequest, signal: AbortSignal) => Promise<PageReply>;

const PATH = '/v1/admin/cell-seats';

/** Over connections that are kept from one poll to the next. */
export function createFetchPage(tokens: ServiceTokens): FetchPage {
  return async (cell, request, signal) => {
    const token = await tokens.for(cell.cellId).catch(() => null);
    if (token === null) return failed('unminted');
    try {
      const response = await fetch(urlOf(cell, request), {
        headers: { authorization: `Bearer ${token}` },
        // a redirect is an answer; followed, it would take the token elsewhere
        redirect: 'manual',
        signal,
      });
      if (response.status !== 200) {
        // read to its end, or the connection cannot be used again
        await readBounded(response);
        const failure = failureOfStatus(response.status);
        if (failure === 'unauthorized') tokens.forget(cell.cellId);
        return failed(failure);
      }
      const body = await readBounded(response);
      return body === null ? failed('too_large') : parse(body);
    } catch {
      return failed('unreachable');
    }
  };
}

function urlOf({ url }: CellAddress, { cursor, reserver }: PageRequest): URL {
  const asked = new URL(PATH, url);
  if (cursor !== null) asked.searchParams.set('since', writeFeedCursor(cursor));
  if (reserver) asked.searchParams.set('reserver', '1');
  return asked;
}

/** Null when the body is longer than any feed page; what is left of it is not read. */
async function readBounded(response: Response): Promise<string | null> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > LIMITS.maxFeedPageBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function parse(body: string): PageReply {
  let json: unknown;
  try {
    json = JSON.parse(body);
  } catch {
    return failed('malformed');
  }
  const parsed = feedPage.safeParse(json);
  return parsed.success ? { ok: true, page: parsed.data } : failed('malformed');
}

function failed(failure: FeedFailure): PageReply {
  return { ok: false, failure };
}
