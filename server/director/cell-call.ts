import type { Clock } from '../clock.ts';
import type { CellAddress, CellPost } from './cell-post.ts';

/** A call of a cell that ends in time: null for no answer, a late one, or one that says no by its status. */
export async function callCell(
  { peerTime, post }: { peerTime: Clock; post: CellPost },
  cell: CellAddress,
  { path, json, timeoutMs }: { path: string; json: string; timeoutMs: number },
): Promise<unknown> {
  const late = new AbortController();
  return new Promise((resolve) => {
    const timer = peerTime.setTimeout(() => {
      late.abort();
      resolve(null);
    }, timeoutMs);
    post(cell, path, json, late.signal)
      .catch(() => null)
      .then((answer) => {
        peerTime.clearTimeout(timer);
        resolve(answer);
      });
  });
}
