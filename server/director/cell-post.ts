import type { ServiceTokens } from './service-tokens.ts';

/** How a director speaks to a cell: JSON over a connection that is kept, with a token for that cell alone. */

export interface CellAddress {
  cellId: string;
  url: string;
}

/** What a cell answered. Rejects when it does not answer, answers anything but 200, or `signal` aborts. */
export type CellPost = (cell: CellAddress, path: string, json: string, signal: AbortSignal) => Promise<unknown>;

export function createCellPost(tokens: ServiceTokens): CellPost {
  return async (cell, path, json, signal) => {
    const response = await fetch(new URL(path, cell.url), {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${await tokens.for(cell.cellId)}` },
      body: json,
      redirect: 'error',
      signal,
    });
    if (response.status !== 200) {
      // read to its end, or the connection cannot be used again
      await response.arrayBuffer();
      throw new Error(`answered ${response.status}`);
    }
    return response.json();
  };
}
