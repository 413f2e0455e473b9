import { CLOSE_REASONS, type CloseReason } from '../../contract/index.ts';
import { endSocket, isEnding, SEND_REFUSED, type Socket } from '../uws.ts';

export interface PeerHandlers {
  /** The buffer belongs to the server again as soon as the handler returns. */
  message(data: ArrayBuffer, isBinary: boolean): void;
  drain(): void;
  /** Once. The reason is the peer's own text when the peer closed. */
  closed(code: number, reason: string): void;
}

const NOTHING: PeerHandlers = { message: () => {}, drain: () => {}, closed: () => {} };

export type RawSocket = Socket<PeerSocket>;

/**
 * One WebSocket of a host or a phone. Its meaning changes with time (one that has not said who it is, a control, an end of a
 * splice), so whoever it belongs to at a moment puts its handlers in. Safe to use after its end: everything is a no-op then.
 */
export class PeerSocket {
  /** Whom it counts against. */
  readonly source: string;
  #raw: RawSocket | null = null;
  #handlers: PeerHandlers = NOTHING;
  #cleanups: (() => void)[] = [];
  #closedAs: CloseReason | null = null;
  #over = false;

  constructor(source: string) {
    this.source = source;
  }

  /** Null before it is opened and after its end. */
  get raw(): RawSocket | null {
    return this.#raw;
  }

  /** False as soon as either side has begun to close. */
  get open(): boolean {
    return !this.#over && this.#closedAs === null;
  }

  /** Why this side closed it, if it did. */
  get closedAs(): CloseReason | null {
    return this.#closedAs;
  }

  handle(handlers: Partial<PeerHandlers>): void {
    this.#handlers = { ...NOTHING, ...handlers };
  }

  /** Runs at the end of the socket, whoever holds it then; at once if it is over. What must be given back belongs here. */
  onEnd(cleanup: () => void): void {
    if (this.#over) cleanup();
    // A pushed array has room for seventeen; most sockets have two, for hours.
    else this.#cleanups = [...this.#cleanups, cleanup];
  }

  /** False when the message went nowhere. */
  send(text: string): boolean {
    if (this.#raw === null || isEnding(this.#raw)) return false;
    return this.#raw.send(text, false) !== SEND_REFUSED;
  }

  /** In bounded time; the first reason stands. */
  close(reason: CloseReason): void {
    if (!this.open) return;
    this.#closedAs = reason;
    if (this.#raw !== null) endSocket(this.#raw, CLOSE_REASONS[reason], reason);
  }

  // Called by the routes.

  opened(raw: RawSocket): void {
    this.#raw = raw;
    // Closed between the upgrade and here.
    if (this.#closedAs !== null) endSocket(raw, CLOSE_REASONS[this.#closedAs], this.#closedAs);
  }

  received(data: ArrayBuffer, isBinary: boolean): void {
    if (this.open) this.#handlers.message(data, isBinary);
  }

  drained(): void {
    if (this.open) this.#handlers.drain();
  }

  /** Also for a socket that never opened. */
  ended(code: number, reason: string): void {
    if (this.#over) return;
    this.#over = true;
    this.#raw = null;
    const handlers = this.#handlers;
    this.#handlers = NOTHING;
    for (const cleanup of this.#cleanups.splice(0)) cleanup();
    handlers.closed(code, reason);
  }
}
