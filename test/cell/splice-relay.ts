import { once } from 'node:events';
import { WebSocket } from 'ws';
import { PeerSocket } from '../../server/cell/peer-socket.ts';
import type { Splice } from '../../server/cell/splice.ts';
import type { SpliceTrigger } from '../../server/cell/splice-triggers.ts';
import { Splicer } from '../../server/cell/splicer.ts';
import { type Clock, systemClock } from '../../server/clock.ts';
import { createMetrics, type Metrics } from '../../server/metrics.ts';
import { socketRoute } from '../../server/socket-route.ts';
import { createApp, type Listener, listen, selfTestPause } from '../../server/uws.ts';

export interface Closed {
  code: number;
  reason: string;
}

/** A phone and a host joined by a real splicer over real sockets, with nothing of a cell around it. */
export interface Pair {
  client: WebSocket;
  host: WebSocket;
  /** Null when the splicer refused the pair. */
  splice: Splice | null;
  triggers: SpliceTrigger[];
  /** How often the relay saw each socket end. */
  ends: { client: number; host: number };
  clientClosed: Promise<Closed>;
  hostClosed: Promise<Closed>;
}

export interface SpliceRelay {
  splicer: Splicer;
  metrics: Metrics;
  pair(): Promise<Pair>;
  stop(): void;
}

export interface SpliceRelayOptions {
  pausing?: boolean;
  clock?: Clock;
}

export async function startSpliceRelay(options: SpliceRelayOptions = {}): Promise<SpliceRelay> {
  const { pausing = true, clock = systemClock } = options;
  if (pausing && !(await selfTestPause())) throw new Error('pausing does not work here');
  const metrics = createMetrics();
  const splicer = new Splicer({ clock, metrics, pausing });
  const app = createApp({
    onError: (error) => {
      throw error;
    },
  });
  let opened: (peer: PeerSocket) => void = () => {};
  for (const kind of ['connect', 'data'] as const)
    socketRoute<PeerSocket>(app, `/${kind}`, kind, {
      upgrade: () => ({ accept: new PeerSocket('test') }),
      open: (ws, peer) => {
        peer.opened(ws);
        opened(peer);
      },
      message: (_ws, peer, data, isBinary) => peer.received(data, isBinary),
      drain: (_ws, peer) => peer.drained(),
      close: (_ws, peer, code, reason) => peer.ended(code, reason),
    });
  const listener: Listener = await listen(app, '127.0.0.1', 0);
  const dials: WebSocket[] = [];

  const dial = async (kind: 'connect' | 'data'): Promise<[WebSocket, PeerSocket]> => {
    const accepted = new Promise<PeerSocket>((resolve) => {
      opened = resolve;
    });
    const socket = new WebSocket(`ws://127.0.0.1:${listener.port}/${kind}`, { perMessageDeflate: false });
    socket.on('error', () => {});
    dials.push(socket);
    await once(socket, 'open');
    return [socket, await accepted];
  };

  return {
    splicer,
    metrics,
    async pair() {
      const [client, clientPeer] = await dial('connect');
      const [host, hostPeer] = await dial('data');
      const triggers: SpliceTrigger[] = [];
      const ends = { client: 0, host: 0 };
      clientPeer.onEnd(() => {
        ends.client++;
      });
      hostPeer.onEnd(() => {
        ends.host++;
      });
      const splice = splicer.join(clientPeer, hostPeer, (trigger) => triggers.push(trigger));
      return { client, host, splice, triggers, ends, clientClosed: closeOf(client), hostClosed: closeOf(host) };
    },
    stop() {
      splicer.stop();
      for (const socket of dials) socket.terminate();
      listener.destroy();
    },
  };
}

async function closeOf(socket: WebSocket): Promise<Closed> {
  const [code, reason] = await once(socket, 'close');
  return { code, reason: reason.toString() };
}

/** Resolves once `condition` holds; looks after each turn of the event loop. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}

/** Reads at most `bytesPerSecond`, by pausing its socket. */
export function limitReading(socket: WebSocket, bytesPerSecond: number): void {
  const start = performance.now();
  let read = 0;
  socket.on('message', (data: Buffer) => {
    read += data.length;
    const aheadMs = (read / bytesPerSecond) * 1_000 - (performance.now() - start);
    if (aheadMs < 2 || socket.isPaused) return;
    socket.pause();
    setTimeout(() => socket.resume(), aheadMs);
  });
}
