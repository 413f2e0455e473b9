import { once } from 'node:events';
import { WebSocket } from 'ws';
import { createApp, type HttpResponse, listen, type Socket, socketSettings } from './uws.ts';

const MESSAGES = 64;
const MESSAGE_BYTES = 4_096;
/** Loopback delivers in microseconds; a socket that is still silent after this long is paused. */
const SILENCE_MS = 50;
const TIMEOUT_MS = 5_000;

export interface PauseFunctions {
  pause(this: Socket): void;
  resume(this: Socket): void;
}

/** Shows on a real socket that a paused one hands over nothing, and everything after it is resumed; null if it does not. */
export async function tryPausing(): Promise<PauseFunctions | null> {
  const app = createApp();
  let functions: PauseFunctions | null = null;
  let received = 0;
  let opened: (ws: Socket) => void = () => {};
  const serverSide = new Promise<Socket>((resolve) => {
    opened = resolve;
  });
  let complete: () => void = () => {};
  const all = new Promise<void>((resolve) => {
    complete = resolve;
  });
  app.get('/functions', (res: HttpResponse) => {
    functions = { pause: res.pause, resume: res.resume };
    res.end();
  });
  app.ws('/socket', {
    ...socketSettings(MESSAGE_BYTES, MESSAGES * MESSAGE_BYTES),
    open: (ws) => opened(ws as Socket),
    message: () => {
      received++;
      if (received === MESSAGES) complete();
    },
  });
  const listener = await listen(app, '127.0.0.1', 0).catch(() => null);
  if (listener === null) return null;
  const origin = `127.0.0.1:${listener.port}`;
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  let client: WebSocket | undefined;
  try {
    await fetch(`http://${origin}/functions`, { signal, headers: { connection: 'close' } }).then((reply) =>
      reply.text(),
    );
    const found = functions as PauseFunctions | null;
    if (typeof found?.pause !== 'function' || typeof found.resume !== 'function') return null;
    client = new WebSocket(`ws://${origin}/socket`, { perMessageDeflate: false });
    const ready = Promise.all([serverSide, once(client, 'open')]);
    const [ws] = await Promise.race([ready, failure(signal, client)]);
    found.pause.call(ws);
    for (let i = 0; i < MESSAGES; i++) client.send(Buffer.alloc(MESSAGE_BYTES));
    await new Promise((resolve) => setTimeout(resolve, SILENCE_MS));
    if (received > 0) return null;
    found.resume.call(ws);
    await Promise.race([all, failure(signal, client)]);
    return found;
  } catch {
    // Whatever went wrong, pausing has not been shown to work: the caller says so and does without.
    return null;
  } finally {
    client?.terminate();
    listener.destroy();
  }
}

async function failure(signal: AbortSignal, client: WebSocket): Promise<never> {
  const [error] = await Promise.race([once(client, 'error'), once(signal, 'abort')]);
  throw error;
}
