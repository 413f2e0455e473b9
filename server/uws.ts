import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket, us_socket_context_t } from 'uWebSockets.js';
import uWS from 'uWebSockets.js';
import { createServer } from 'node:net';
import { LIMITS } from '../contract/limits.ts';

/**
 * The only file that imports uWebSockets.js: swapping its build, or the library, touches this one.
 *
 * What the rest of the code must know of it:
 * - an HTTP handler that returns without answering or `onAborted` aborts the process; use `http.ts` and `socket-route.ts`.
 * - a request object is dead after the first `await`; so is a message's ArrayBuffer after its handler returns.
 * - the close handler runs inside `end()` and `close()`; any call on a closed socket throws (ask {@link isClosed}).
 * - a socket that holds more than its `maxBackpressure` drops everything, its own close frame included.
 */

declare module 'uWebSockets.js' {
  interface TemplatedApp {
    listen(host: string, port: number, options: number, callback: (socket: us_listen_socket | false) => void): this;
    /** Ends every socket of the app (1006 for WebSockets) and its listen sockets. */
    close(): this;
  }
  // The shipped types have an enum for it, which does not exist at run time.
  export const LIBUS_LISTEN_EXCLUSIVE_PORT: number;
}

export type App = TemplatedApp;
export type { HttpRequest, HttpResponse };
export type UpgradeContext = us_socket_context_t;

/** What a route keeps with a socket: one property, since uWebSockets.js copies user data onto the socket itself. */
export interface SocketData<State> {
  state: State;
}
export type Socket<State = unknown> = uWS.WebSocket<SocketData<State>>;
export type SocketBehavior<State> = uWS.WebSocketBehavior<SocketData<State>>;

/** What `send` answers: 1 sent, 0 queued behind backpressure, 2 refused (the stream has a gap: stop it). */
export const SEND_REFUSED = 2;

export type ErrorSink = (error: unknown, where: string) => void;

export interface AppOptions {
  /** Hears of exceptions in handlers. Without it they go to stderr. */
  onError?: ErrorSink;
}

const errorSinks = new WeakMap<App, ErrorSink>();
const reportToStderr: ErrorSink = (error, where) => console.error(`${where}:`, error);

/**
 * uWebSockets.js falls back silently to a slow JavaScript stand-in where it has no binary.
 * @throws an error that names platform and Node ABI.
 */
export function assertNativeAddon(): void {
  if (typeof (uWS as { SSLApp?: unknown }).SSLApp === 'function') return;
  const { platform, arch, versions } = process;
  throw new Error(`uWebSockets.js has no native binary for ${platform}/${arch} with Node ABI ${versions.modules}`);
}

/** @throws if the native addon is missing. */
export function createApp(options: AppOptions = {}): App {
  assertNativeAddon();
  const app = uWS.App();
  if (options.onError) errorSinks.set(app, options.onError);
  return app;
}

export function errorSinkOf(app: App): ErrorSink {
  return errorSinks.get(app) ?? reportToStderr;
}

export interface Listener {
  port: number;
  /** Stops accepting; open sockets go on. */
  close(): void;
  /** Ends every socket of the app at once, without a close frame. */
  destroy(): void;
}

export class ListenError extends Error {
  override readonly name = 'ListenError';
  readonly code: string;
  constructor(host: string, port: number, code: string) {
    const why: Record<string, string> = {
      EADDRINUSE: 'the port is in use',
      EACCES: 'permission denied',
      EADDRNOTAVAIL: 'no such address on this machine',
      ENOTFOUND: 'unknown host name',
    };
    super(`cannot listen on ${host}:${port}: ${why[code] ?? code}`);
    this.code = code;
  }
}

/**
 * @param port 0 for any free one.
 * @throws ListenError
 */
export async function listen(app: App, host: string, port: number): Promise<Listener> {
  const token = await new Promise<us_listen_socket | false>((resolve) => {
    // Without the option two processes share a port silently.
    app.listen(host, port, uWS.LIBUS_LISTEN_EXCLUSIVE_PORT, resolve);
  });
  if (token === false) throw new ListenError(host, port, await whyNotListening(host, port));
  let open = true;
  const once = (stop: () => void) => () => {
    if (!open) return;
    open = false;
    stop();
  };
  const close = once(() => uWS.us_listen_socket_close(token));
  return {
    port: uWS.us_socket_local_port(token as unknown as Parameters<typeof uWS.us_socket_local_port>[0]),
    close,
    destroy() {
      close();
      app.close();
    },
  };
}

/** uWebSockets.js says only that it failed; Node says why. */
function whyNotListening(host: string, port: number): Promise<string> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'));
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve('refused by uWebSockets.js')));
  });
}

const closed = new WeakSet<Socket>();

interface Ending {
  code: number;
  reason: string;
  deadline: NodeJS.Timeout;
}
const ending = new Map<Socket, Ending>();

/** True once the close handler has begun: the socket must not be touched any more. */
export function isClosed(ws: Socket): boolean {
  return closed.has(ws);
}

/** True from {@link endSocket} on. Such a socket gets no more messages and must be sent none. */
export function isEnding(ws: Socket): boolean {
  return (ending.size > 0 && ending.has(ws)) || closed.has(ws);
}

/**
 * Closes in bounded time: a close frame behind what is queued already, then the end of the connection; a peer that does not
 * take what is queued is cut off after 1 s. The reason is cut to 123 bytes. Harmless on a socket that is ending or closed.
 *
 * The close handler runs inside this call if nothing is queued, else within 1 s; in both cases once. A peer that ignores the
 * frame it was sent keeps only a half-closed descriptor, which uWebSockets.js ends within 16 s.
 */
export function endSocket(ws: Socket, code: number, reason: string): void {
  if (isEnding(ws)) return;
  const text = cutReason(reason);
  if (ws.getBufferedAmount() === 0) {
    ws.end(code, text);
    return;
  }
  // After end() the socket is out of reach, so a peer that is not reading could no longer be cut off: end once it has drained.
  // A process that stood still looks at its timers before its sockets: what was taken meanwhile has to be noticed first.
  const deadline = setTimeout(() => setImmediate(cutOff, ws), LIMITS.closeDeadlineMs);
  ending.set(ws, { code, reason: text, deadline });
  resumeReading(ws);
}

function cutOff(ws: Socket): void {
  if (ending.delete(ws)) ws.close();
}

/** Ends the connection at once, without a close frame: the peer sees 1006. Harmless on a closed ws. */
export function destroySocket(ws: Socket): void {
  if (!closed.has(ws)) ws.close();
}

/** For the drain handler: finishes a pending {@link endSocket}. True if the socket is ending. */
export function continueEnding(ws: Socket): boolean {
  const end = ending.get(ws);
  if (end === undefined) return false;
  if (ws.getBufferedAmount() === 0) {
    forgetEnding(ws, end);
    ws.end(end.code, end.reason);
  }
  return true;
}

/** For the close handler, first thing. */
export function markClosed(ws: Socket): void {
  closed.add(ws);
  const end = ending.get(ws);
  if (end !== undefined) forgetEnding(ws, end);
}

function forgetEnding(ws: Socket, end: Ending): void {
  clearTimeout(end.deadline);
  ending.delete(ws);
}

/** At most 123 bytes of UTF-8, never half a character. */
export function cutReason(reason: string): string {
  const bytes = Buffer.from(reason);
  if (bytes.length <= LIMITS.maxCloseReasonBytes) return reason;
  let end: number = LIMITS.maxCloseReasonBytes;
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}

/** Splices may be silent for minutes, with pings answered; a peer that answers none for ten minutes is gone. At most 960. */
const IDLE_TIMEOUT_SECONDS = 600;

/** How every WebSocket of the relay is set up. Route handlers are added by `socket-route.ts`. */
export function socketSettings(maxPayloadBytes: number, maxBackpressureBytes: number) {
  return {
    compression: uWS.DISABLED,
    maxPayloadLength: maxPayloadBytes,
    maxBackpressure: maxBackpressureBytes,
    idleTimeout: IDLE_TIMEOUT_SECONDS,
    // Pausing needs it: resume arms a 10 s timer, which pings a WebSocket, or closes it where it may not ping.
    sendPingsAutomatically: true,
  };
}

/**
 * Pausing a reader. uWebSockets.js has it for HTTP only, but an HttpResponse's `pause` and `resume` work on a WebSocket:
 * both wrap the same native ws. Rules, beside the automatic pings above:
 * - outgoing backpressure makes a paused socket read again: pause once more at any message that comes while paused;
 * - neither a close nor a lost peer is noticed while paused: look now and then.
 */
interface Pausing {
  pause(this: Socket): void;
  resume(this: Socket): void;
}
let pausing: Pausing | null = null;
let selfTest: Promise<boolean> | undefined;

/** True once {@link selfTestPause} has shown that pausing works here. */
export function canPause(): boolean {
  return pausing !== null;
}

/** Stops reading from the peer, so that TCP stops it from sending. Does nothing where pausing does not work. */
export function pauseReading(ws: Socket): void {
  pausing?.pause.call(ws);
}

export function resumeReading(ws: Socket): void {
  pausing?.resume.call(ws);
}

/** Once a process: pauses and resumes a real socket over loopback. Never rejects. */
export function selfTestPause(): Promise<boolean> {
  selfTest ??= import('./pause-self-test.ts').then(async ({ tryPausing }) => {
    const found = await tryPausing();
    pausing = found;
    return found !== null;
  });
  return selfTest;
}
