import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { readFeedCursor } from '../../contract/seat-feed.ts';
import { type SeatedSession, SeatLog } from '../../server/cell/seat-log.ts';
import { systemClock } from '../../server/clock.ts';
import { benchHost } from './feed-pages.ts';

export interface FeedCells {
  cells: readonly { id: string; url: string }[];
  /** Pages that were served. */
  served(): number;
  stop(): void;
}

interface FeedCell {
  id: string;
  log: SeatLog;
  server: Server;
  sessions: SeatedSession[];
}

/** So many cells with so many seats each, that tell of so many changes a second together: real seat logs over plain HTTP. */
export async function startFeedCells(count: number, seats: number, changesPerSecond: number): Promise<FeedCells> {
  let served = 0;
  const cells: FeedCell[] = [];
  for (let n = 0; n < count; n++) {
    const id = `cell-${n}`;
    const log = new SeatLog(systemClock, `${id}-process`);
    const sessions = Array.from(
      { length: seats },
      (_, i): SeatedSession => ({ host: benchHost(n * seats + i), epoch: 1, generation: 1, state: 'active' }),
    );
    for (const session of sessions) log.joined(session);
    const server = createServer((request, response) => {
      served += 1;
      response.setHeader('content-type', 'application/json').end(pageOf(id, log, request.url ?? ''));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    cells.push({ id, log, server, sessions });
  }
  const changes = setInterval(
    () => change(cells[Math.floor(Math.random() * count)] as FeedCell),
    1_000 / changesPerSecond,
  );
  return {
    cells: cells.map(({ id, server }) => ({ id, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })),
    served: () => served,
    stop() {
      clearInterval(changes);
      for (const { server } of cells) {
        server.closeAllConnections();
        server.close();
      }
    },
  };
}

/** Turn by turn a host leaves, and one that left comes back, one generation on. */
function change({ log, sessions }: FeedCell): void {
  const at = Math.floor(Math.random() * sessions.length);
  const session = sessions[at] as SeatedSession;
  if (log.joinedAt(session) !== undefined) {
    log.left(session, 1006);
    return;
  }
  const back: SeatedSession = { ...session, generation: session.generation + 1 };
  sessions[at] = back;
  log.joined(back);
}

function pageOf(cellId: string, log: SeatLog, url: string): string {
  const since = new URL(url, 'http://cell').searchParams.get('since');
  return JSON.stringify({
    v: 1,
    cellId,
    incarnation: `${cellId}-process`,
    at: Date.now(),
    draining: false,
    counts: { controls: log.seats, seats: log.seats },
    ...log.page(since === null ? null : readFeedCursor(since)),
  });
}
