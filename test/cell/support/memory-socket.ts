import { PeerSocket, type RawSocket } from '../../../server/cell/peer-socket.ts';
import { markClosed } from '../../../server/uws.ts';

/** A socket whose peer is the test: what is written to it can be read, and it ends when the test or the relay says so. */
export class MemorySocket {
  readonly peer = new PeerSocket('192.0.2.1');
  readonly sent: string[] = [];
  closed: { code: number; reason: string } | null = null;
  readonly #raw: RawSocket;

  constructor() {
    this.#raw = {
      send: (message: string) => {
        this.sent.push(message);
        return 1;
      },
      end: (code: number, reason: string) => this.#end(code, reason),
      close: () => this.#end(1006, ''),
      getBufferedAmount: () => 0,
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

  say(frame: object): void {
    const bytes = new TextEncoder().encode(JSON.stringify(frame));
    this.peer.received(bytes.buffer as ArrayBuffer, false);
  }

  frames(type: string): Record<string, unknown>[] {
    return this.sent.map((text) => JSON.parse(text)).filter((frame) => frame.type === type);
  }
}
