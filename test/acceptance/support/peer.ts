import { randomInt } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { WebSocket } from 'ws';

/** How long a test waits for what comes at once, on a machine that may have other work. */
export const PATIENCE_MS = 40_000;

export interface Frame {
  data: Buffer;
  binary: boolean;
}

export interface CloseSeen {
  code: number;
  reason: string;
  /** `performance.now()` when the close was seen. */
  at: number;
}

/** The relay answered the upgrade with something other than 101. */
export class UpgradeRefused extends Error {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  constructor(status: number, headers: IncomingHttpHeaders, body: string) {
    super(`upgrade refused with ${status} ${body}`);
    this.status = status;
    this.headers = headers;
    this.body = body;
  }
}

/** A source address nobody else in the run uses, so that one test's dials do not use up another's budget. */
export function newSource(): string {
  return `10.${randomInt(256)}.${randomInt(256)}.${randomInt(1, 255)}`;
}

/** X-Forwarded-For as the load balancer writes it for a client at `source`. */
export function forwardedFor(source: string): Record<string, string> {
  return { 'x-forwarded-for': `${source}, 203.0.113.7` };
}

export interface DialOptions {
  headers?: Record<string, string>;
  /** Source address in X-Forwarded-For; a fresh one when absent, none at all when null. */
  source?: string | null;
}

interface Waiter {
  matches: (frame: Frame) => boolean;
  resolve: (frame: Frame) => void;
  reject: (error: Error) => void;
  timer: NodeJS.Timeout;
  what: string;
}

/** One WebSocket from the client's side: every frame is kept until a test takes it, and the close is remembered. */
export class Peer {
  readonly socket: WebSocket;
  readonly closed: Promise<CloseSeen>;
  closeSeen: CloseSeen | null = null;
  /** What the client library found wrong, if it was that which ended the socket. */
  error: Error | null = null;
  pings = 0;
  #inbox: Frame[] = [];
  #waiters: Waiter[] = [];
  #tap: ((frame: Frame) => boolean) | null = null;

  private constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on('message', (data, binary) => this.#receive({ data: data as Buffer, binary }));
    socket.on('ping', () => {
      this.pings += 1;
    });
    socket.on('error', (error) => {
      this.error ??= error;
    });
    this.closed = new Promise((resolve) => {
      socket.on('close', (code, reason) => {
        this.closeSeen = { code, reason: reason.toString(), at: performance.now() };
        for (const waiter of this.#waiters.splice(0)) this.#fail(waiter);
        resolve(this.closeSeen);
      });
    });
  }

  /** Resolves at the 101. Rejects with `UpgradeRefused` when the relay answers anything else. */
  static dial(url: string, options: DialOptions = {}): Promise<Peer> {
    const source = options.source === undefined ? newSource() : options.source;
    const headers = { ...(source === null ? {} : forwardedFor(source)), ...options.headers };
    const socket = new WebSocket(url.replace(/^http/, 'ws'), { headers, perMessageDeflate: false });
    const peer = new Peer(socket);
    return new Promise((resolve, reject) => {
      socket.on('unexpected-response', (_request, response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (chunk) => {
          body += chunk;
        });
        response.on('end', () => reject(new UpgradeRefused(response.statusCode ?? 0, response.headers, body)));
      });
      socket.on('open', () => resolve(peer));
      socket.on('error', reject);
    });
  }

  #receive(frame: Frame): void {
    if (this.#tap?.(frame) === true) return;
    const index = this.#waiters.findIndex((waiter) => waiter.matches(frame));
    if (index < 0) {
      this.#inbox.push(frame);
      return;
    }
    const [waiter] = this.#waiters.splice(index, 1);
    clearTimeout(waiter?.timer);
    waiter?.resolve(frame);
  }

  #fail(waiter: Waiter): void {
    clearTimeout(waiter.timer);
    const close = this.closeSeen;
    const why = this.error === null ? '' : ` (${this.error.message})`;
    const state = close === null ? 'still open' : `closed ${close.code} ${JSON.stringify(close.reason)}${why}`;
    const held = this.#inbox.map((frame) => frame.data.toString('utf8', 0, 120)).join(' | ');
    waiter.reject(new Error(`no ${waiter.what}; socket ${state}; unread: ${held === '' ? 'nothing' : held}`));
  }

  /** Sees every frame first; one for which it returns true goes no further. */
  tap(handler: (frame: Frame) => boolean): void {
    this.#tap = handler;
    this.#inbox = this.#inbox.filter((frame) => !handler(frame));
  }

  /** The first unread frame that matches, now or within the time. */
  take(what: string, matches: (frame: Frame) => boolean, timeoutMs = PATIENCE_MS): Promise<Frame> {
    const index = this.#inbox.findIndex(matches);
    const held = index < 0 ? undefined : this.#inbox.splice(index, 1)[0];
    if (held !== undefined) return Promise.resolve(held);
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        what,
        matches,
        resolve,
        reject,
        timer: setTimeout(() => {
          this.#waiters = this.#waiters.filter((other) => other !== waiter);
          this.#fail(waiter);
        }, timeoutMs),
      };
      if (this.closeSeen !== null) {
        this.#fail(waiter);
        return;
      }
      this.#waiters.push(waiter);
    });
  }

  next(timeoutMs = PATIENCE_MS): Promise<Frame> {
    return this.take('frame', () => true, timeoutMs);
  }

  unread(): Frame[] {
    return [...this.#inbox];
  }

  send(data: string | Buffer): void {
    this.socket.send(data, { binary: typeof data !== 'string' });
  }

  sendJson(value: unknown): void {
    this.send(JSON.stringify(value));
  }

  /** The close, or an error when the socket is still open after the time. */
  async close(timeoutMs = PATIENCE_MS): Promise<CloseSeen> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`socket still open after ${timeoutMs} ms`)), timeoutMs);
    });
    try {
      return await Promise.race([this.closed, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  get isOpen(): boolean {
    return this.socket.readyState === WebSocket.OPEN;
  }

  /** Hangs up without a close frame, as a network loss does. */
  drop(): void {
    this.socket.terminate();
  }

  /** Says goodbye with a close frame. */
  hangUp(code = 1000, reason = ''): void {
    this.socket.close(code, reason);
  }
}

/** The status of a refused upgrade; fails when the upgrade is accepted. */
export async function refusal(dial: Promise<{ drop(): void }>): Promise<UpgradeRefused> {
  try {
    const peer = await dial;
    peer.drop();
  } catch (error) {
    if (error instanceof UpgradeRefused) return error;
    throw error;
  }
  throw new Error('the upgrade was accepted');
}
