import { once } from 'node:events';
import { WebSocket } from 'ws';
import { socketRoute } from './socket-route.ts';
import { createApp, listen } from './uws.ts';

/** Loopback connects in microseconds, on a machine that has time for it. */
const TIMEOUT_MS = 5_000;

export interface CorkLender {
  close(): void;
}

/**
 * A socket of this process to itself, so that even the only peer finds another socket whose cork its late upgrade can borrow
 * (`socket-route.ts`). Nobody else can connect to it. Null where loopback does not work; never rejects.
 */
export async function openCorkLender(): Promise<CorkLender | null> {
  const app = createApp();
  const opened = new Promise<void>((resolve) => {
    socketRoute<null>(app, '/', 'control', { upgrade: () => ({ accept: null }), open: () => resolve() });
  });
  const listener = await listen(app, '127.0.0.1', 0).catch(() => null);
  if (listener === null) return null;
  const client = new WebSocket(`ws://127.0.0.1:${listener.port}/`, {
    perMessageDeflate: false,
    handshakeTimeout: TIMEOUT_MS,
  });
  const close = () => {
    client.terminate();
    listener.destroy();
  };
  try {
    await Promise.all([opened, once(client, 'open')]);
  } catch {
    close();
    return null;
  }
  client.on('error', () => undefined);
  listener.close();
  return { close };
}
