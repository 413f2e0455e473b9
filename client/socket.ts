/** The one seam to a WebSocket: `ws` in Node, the global one in browsers, a failing one in tests of the back-off. */

/** A whole message; text stays text and binary stays binary all the way. */
export type Message = string | Uint8Array;

export interface SocketEnd {
  /** 1006 when there was no close frame. */
  code: number;
  reason: string;
  /** HTTP status that the upgrade was refused with. Browsers do not tell. */
  status?: number;
  retryAfterMs?: number;
}

export interface SocketHandlers {
  opened(): void;
  message(message: Message): void;
  /** Called exactly once, whatever happened, and last. */
  ended(end: SocketEnd): void;
  /** Some of what was sent has left the socket's buffer. */
  drained?(): void;
  pong?(): void;
}

export interface RelaySocket {
  /** @returns false when the socket is not open (any more): nothing was sent */
  send(message: Message): boolean;
  /** Runs once the event loop has had its turn. */
  nextTurn(run: () => void): void;
  /** Bytes sent and not yet handed to the network. */
  buffered(): number;
  /** @returns false where reading cannot be paused */
  pauseReading(): boolean;
  resumeReading(): void;
  /** @returns false where the platform has no pings */
  ping(): boolean;
  /** Writes the close frame; a peer that ignores it is cut off 1 s later. */
  close(code: number, reason: string): void;
  terminate(): void;
}

export interface SocketTarget {
  url: string;
  headers?: Record<string, string>;
  maxMessageBytes: number;
}

export type OpenSocket = (target: SocketTarget, handlers: SocketHandlers) => RelaySocket;

export function messageBytes(message: Message): number {
  // Two bytes a character is an upper bound good enough for accounting, without encoding the text for it.
  return typeof message === 'string' ? message.length * 2 : message.byteLength;
}

/** The WebSocket URL of a path on an http(s) origin. */
export function webSocketUrl(origin: string, path: string): string {
  return `${origin.replace(/^http/, 'ws')}${path}`;
}
