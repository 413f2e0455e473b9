import { LIMITS } from '../contract/limits.ts';
import { CLIENT_LIMITS } from './limits.ts';
import { type Message, messageBytes, type RelaySocket, type SocketEnd } from './socket.ts';

/** A stream that takes no more: it ended, the message is too large, or the caller does not wait for `send()`. */
export class StreamError extends Error {
  readonly code: 'closed' | 'message-too-large' | 'send-buffer-full';
  /** How the stream ended, when it did. */
  readonly end: SocketEnd | null;

  constructor(code: StreamError['code'], end: SocketEnd | null = null) {
    super(end ? `stream closed (${end.code} ${end.reason})` : code);
    this.name = 'StreamError';
    this.code = code;
    this.end = end;
  }
}

const LOCALLY_CLOSED: SocketEnd = { code: 1006, reason: 'closed by this side' };

interface Waiting {
  resolve(): void;
  reject(error: Error): void;
}

/**
 * Whole messages in both directions through a splice, in order and without a gap, for as long as the connection lives.
 * It never carries over to the next connection: what the peer did not acknowledge by the app's own means may be lost.
 *
 * Backpressure: `await send()` before the next one, and read what arrives. Unread messages pause the socket, which makes
 * the relay pause the sender.
 */
export class MessageStream implements AsyncIterable<Message> {
  /** Resolves when the connection is gone; never rejects. */
  readonly closed: Promise<SocketEnd>;
  readonly #socket: RelaySocket;
  readonly #senders: Waiting[] = [];
  readonly #unread: Message[] = [];
  readonly #readers: ((message: Message | null) => void)[] = [];
  #unreadBytes = 0;
  #sentInTurn = 0;
  #paused = false;
  #end: SocketEnd | null = null;
  #settleClosed!: (end: SocketEnd) => void;

  constructor(socket: RelaySocket) {
    this.#socket = socket;
    this.closed = new Promise((resolve) => {
      this.#settleClosed = resolve;
    });
  }

  /** How it ended, or null while it lives. */
  get end(): SocketEnd | null {
    return this.#end;
  }

  /** True while unread messages hold back the peer. */
  get paused(): boolean {
    return this.#paused;
  }

  /**
   * Resolves once the socket holds at most 256 KiB, so that a caller who waits goes at the network's pace.
   * @throws StreamError `closed`; `message-too-large` over 8 MiB; `send-buffer-full` when 16 MiB wait already. Nothing of
   * the message was sent in the last two cases.
   */
  async send(message: Message): Promise<void> {
    if (this.#end) throw new StreamError('closed', this.#end);
    const bytes = messageBytes(message);
    // A text's exact size is only worth computing near the limit.
    if (bytes > LIMITS.maxFrameBytes && exactBytes(message) > LIMITS.maxFrameBytes) {
      throw new StreamError('message-too-large');
    }
    if (this.#socket.buffered() + bytes > CLIENT_LIMITS.sendLimitBytes) throw new StreamError('send-buffer-full');
    // Closed by this side, and the end of it not yet seen.
    if (!this.#socket.send(message)) throw new StreamError('closed', LOCALLY_CLOSED);
    this.#sentInTurn += bytes;
    if (this.#sentInTurn >= CLIENT_LIMITS.sendMarkBytes) await this.#takeTurn();
    if (this.#end) throw new StreamError('closed', this.#end);
    if (this.#socket.buffered() <= CLIENT_LIMITS.sendMarkBytes) return;
    await new Promise<void>((resolve, reject) => this.#senders.push({ resolve, reject }));
  }

  /**
   * As long as the network takes all it is given, nothing makes a sender wait, and its loop would keep everything else
   * in the process from running.
   */
  #takeTurn(): Promise<void> {
    return new Promise((resolve) =>
      this.#socket.nextTurn(() => {
        this.#sentInTurn = 0;
        resolve();
      }),
    );
  }

  /** The next message; null once the stream has ended and everything that arrived was read. */
  receive(): Promise<Message | null> {
    const message = this.#unread.shift();
    if (message !== undefined) {
      this.#unreadBytes -= cost(message);
      this.#resumeIfLow();
      return Promise.resolve(message);
    }
    if (this.#end) return Promise.resolve(null);
    return new Promise((resolve) => this.#readers.push(resolve));
  }

  /** Leaving the loop early leaves the stream open: a later loop or `receive()` goes on where this one stopped. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, void> {
    for (;;) {
      const message = await this.receive();
      if (message === null) return;
      yield message;
    }
  }

  /** Ends the stream after what was sent; the peer sees its own side dropped (4408). */
  close(code = 1000, reason = ''): void {
    this.#socket.close(code, reason);
  }

  /** Ends the stream at once; what is buffered is lost. */
  terminate(): void {
    this.#socket.terminate();
  }

  /** For the owner of the socket. */
  deliver(message: Message): void {
    const reader = this.#readers.shift();
    if (reader) {
      reader(message);
      return;
    }
    // Nothing follows a message that had no room: the stream ends before it, without a gap.
    if (this.#unreadBytes > CLIENT_LIMITS.receiveLimitBytes) return;
    this.#unread.push(message);
    this.#unreadBytes += cost(message);
    if (!this.#paused && this.#unreadBytes >= CLIENT_LIMITS.receiveHighBytes) {
      this.#paused = this.#socket.pauseReading();
    }
    if (this.#unreadBytes > CLIENT_LIMITS.receiveLimitBytes) this.close(4429, 'receive limit exceeded');
  }

  /** For the owner of the socket. */
  drained(): void {
    if (this.#senders.length === 0 || this.#socket.buffered() > CLIENT_LIMITS.sendMarkBytes) return;
    for (const sender of this.#senders.splice(0)) sender.resolve();
  }

  /** For the owner of the socket. */
  finish(end: SocketEnd): void {
    if (this.#end) return;
    this.#end = end;
    for (const sender of this.#senders.splice(0)) sender.reject(new StreamError('closed', end));
    for (const reader of this.#readers.splice(0)) reader(null);
    this.#settleClosed(end);
  }

  #resumeIfLow(): void {
    if (!this.#paused || this.#unreadBytes > CLIENT_LIMITS.receiveLowBytes) return;
    this.#paused = false;
    this.#socket.resumeReading();
  }
}

function exactBytes(message: Message): number {
  return typeof message === 'string' ? new TextEncoder().encode(message).length : message.byteLength;
}

/** What an unread message counts: even an empty one takes room. */
function cost(message: Message): number {
  return messageBytes(message) + 64;
}
