import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Stands before what directors ask of a cell, as a load balancer does, and passes it on, or not quite. */
export interface FeedDoor {
  origin: string;
  /** Whether the feed is there at all. */
  hasFeed: boolean;
  /** The first change of the next page that has one is lost. */
  loseOne(): void;
  /** The next booking reaches the cell, and its answer nobody. Resolves when that has happened. */
  loseAnswer(): Promise<void>;
  /** How many changes were lost so far. */
  lost(): number;
  stop(): Promise<void>;
}

const FEED = '/v1/admin/cell-seats';
const BOOKINGS = '/internal/reserve';
const TIMEOUT_MS = 10_000;

export async function feedDoor(upstream: () => string): Promise<FeedDoor> {
  let losing = false;
  let lost = 0;
  let answerLost: (() => void) | null = null;
  const withoutOne = (text: string): string => {
    const page = JSON.parse(text) as { changes?: unknown[] };
    if (!losing || page.changes === undefined || page.changes.length === 0) return text;
    losing = false;
    lost += 1;
    page.changes.shift();
    return JSON.stringify(page);
  };
  const pass = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const path = request.url ?? '/';
    const isFeed = path.startsWith(FEED);
    if (isFeed && !door.hasFeed) {
      response.writeHead(404).end();
      return;
    }
    const { authorization = '' } = request.headers;
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const reply = await fetch(`${upstream()}${path}`, {
      method: request.method ?? 'GET',
      headers: { authorization, 'content-type': 'application/json' },
      ...(chunks.length === 0 ? {} : { body: Buffer.concat(chunks) }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const text = await reply.text();
    if (path.startsWith(BOOKINGS) && answerLost !== null) {
      answerLost();
      answerLost = null;
      response.destroy();
      return;
    }
    response.writeHead(reply.status, { 'content-type': 'application/json' });
    response.end(isFeed && reply.status === 200 ? withoutOne(text) : text);
  };
  const server = createServer((request, response) => {
    pass(request, response).catch(() => response.writeHead(502).end());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const door: FeedDoor = {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    hasFeed: true,
    loseOne() {
      losing = true;
    },
    loseAnswer: () =>
      new Promise((resolve) => {
        answerLost = resolve;
      }),
    lost: () => lost,
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
  return door;
}
