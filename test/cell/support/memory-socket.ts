import { PeerSocket, type RawSocket } from '../../../server/cell/peer-socket.ts';
import { continueEnding, markClosed } from '../../../server/uws.ts';

/** A socket whose peer is the test: what is written to it can be read, and it ends when the test or the relay says so. */
export class MemorySocket {
  readonly peer = new PeerSocket('192.0.2.1');
  readonly sent: string[] = [];
  closed: { code: number; reason: string } | null = null;
  /** What the peer has not taken yet: while there is any, a close waits behind it. */
  buffered = 0;
  readonly #raw: RawSocket;

  constructor() {
    this.#raw = {
      send: (message: string) => {
        this.sent.push(message);
        return 1;
      },
      end: (code: number, reason: string) => this.#end(code, reason),
      close: () => this.#end(1006, ''),
      getBufferedAmount: () => this.buffered,
    } as unknown as RawSocket;
    this.peer.opened(this.#raw);
  }

  /** The relay's close, or the peer's: uWebSockets.js calls the close handler inside `end`. */
  #end(code: number, reason: string): void {
    markClosed(this.#raw);
    this.closed = { code, reason };
    this.peer.ended(code, reason);
  }

  /** The peer closes. */
  leave(code = 1006, reason = ''): void {
    if (this.closed === null) this.#end(code, reason);
  }

  /** The peer has taken everything. */
  drain(): void {
    this.buffered = 0;
    if (!continueEnding(this.#raw)) this.peer.drained();
  }

  say(frame: object): void {
    const bytes = new TextEncoder().encode(JSON.stringify(frame));
    this.peer.received(bytes.buffer as ArrayBuffer, false);
  }

  frames(type: string): Record<string, unknown>[] {
    return this.sent.map((text) => JSON.parse(text)).filter((frame) => frame.type === type);
  }
}
