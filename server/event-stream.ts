import { type Clock, every } from './clock.ts';
import { copyHeaders, type Reply, type Request, sendReply, socketAddress } from './http.ts';
import { type App, errorSinkOf, type HttpResponse } from './uws.ts';

/**
 * Server-sent events, of two kinds. What is offered replaces what still waits: a peer that reads slowly misses what is out of
 * date anyway. What is pushed comes in order and whole, and waits in a bounded queue. A peer that does not read is dropped.
 */

/** Why a stream ended. */
export type StreamEnd = 'hung-up' | 'slow' | 'stopped';

/** A quiet stream says this often that it is alive; uWebSockets.js gives a silent response up after 10 s. */
const ALIVE_MS = 4_000;
/** A peer that has been behind for so long is dropped. */
const SLOW_MS = 5_000;
const LOOK_MS = 1_000;
/** More than this waits for nobody; ten thousand events of the change log are not as much. */
const MAX_WAITING_CHARACTERS = 2_097_152;
const COMMENT = ':\n\n';

export type StreamRequest = Omit<Request, 'body' | 'signal'>;

export interface StreamHandlers {
  /** Answers with a refusal, or null to open the stream. */
  accept(request: StreamRequest): Reply | null;
  opened(stream: EventStream, request: StreamRequest): void;
  /** Once for every stream that opened. */
  ended(stream: EventStream, end: StreamEnd): void;
}

/** Serves GET `path`. `headers` go with the stream. */
export function eventStreamRoute(
  app: App,
  path: string,
  handlers: StreamHandlers,
  clock: Clock,
  headers: Readonly<Record<string, string>> = {},
): void {
  const report = errorSinkOf(app);
  app.get(path, (res, req) => {
    const copied = copyHeaders(req);
    const request = {
      method: 'GET',
      path: req.getUrl(),
      query: req.getQuery() ?? '',
      header: (name: string) => copied.get(name),
      remoteAddress: socketAddress(res),
    };
    try {
      const refusal = handlers.accept(request);
      if (refusal !== null) {
        sendReply(res, refusal);
        return;
      }
      const stream = new EventStream(res, clock, headers, (end) => handlers.ended(stream, end));
      handlers.opened(stream, request);
    } catch (error) {
      report(error, `GET ${path}`);
      res.close();
    }
  });
}

export interface StreamedEvent {
  /** Where a reader that was cut off goes on. */
  id?: string;
  event?: string;
  data: string;
}

function eventText({ id, event, data }: StreamedEvent): string {
  const head = `${id === undefined ? '' : `id: ${id}\n`}${event === undefined ? '' : `event: ${event}\n`}`;
  return `${head}data: ${data.replaceAll('\n', '\ndata: ')}\n\n`;
}

export class EventStream {
  readonly #res: HttpResponse;
  readonly #clock: Clock;
  readonly #onEnd: (end: StreamEnd) => void;
  readonly #stopLooking: () => void;
  #waiting: string[] = [];
  #waitingCharacters = 0;
  #behindSince: number | null = null;
  #wroteAt: number;
  #end: StreamEnd | null = null;

  constructor(
    res: HttpResponse,
    clock: Clock,
    headers: Readonly<Record<string, string>>,
    onEnd: (end: StreamEnd) => void,
  ) {
    this.#res = res;
    this.#clock = clock;
    this.#onEnd = onEnd;
    this.#wroteAt = clock.now();
    res.onAborted(() => this.#ended('hung-up'));
    // with a handler of its own a response that was behind once is not given up 10 s later
    res.onWritable(() => {
      if (this.#end === null) this.#flush();
      return true;
    });
    res.cork(() => {
      res
        .writeStatus('200 OK')
        .writeHeader('content-type', 'text/event-stream')
        .writeHeader('cache-control', 'no-store');
      for (const [name, value] of Object.entries(headers)) res.writeHeader(name, value);
      res.write(COMMENT);
    });
    this.#stopLooking = every(clock, LOOK_MS, () => this.#look());
  }

  /** Sends this, now or when the peer has taken what came before; the newest takes the place of one that still waits. */
  offer(data: string): void {
    if (this.#end !== null) return;
    this.#forgetWaiting();
    this.push({ data });
  }

  /** Sends this after all that was pushed before, or drops a peer for which too much waits already. */
  push(event: StreamedEvent): void {
    if (this.#end !== null) return;
    const text = eventText(event);
    this.#waiting.push(text);
    this.#waitingCharacters += text.length;
    this.#flush();
    if (this.#waiting.length <= 1 || this.#waitingCharacters <= MAX_WAITING_CHARACTERS) return;
    this.#ended('slow');
    this.#res.close();
  }

  /** Whether nothing waits: all has left for the peer. False for good after the end. */
  taken(): boolean {
    if (this.#end !== null) return false;
    this.#flush();
    return this.#behindSince === null;
  }

  get over(): boolean {
    return this.#end !== null;
  }

  /** Harmless on a stream that has ended. */
  stop(): void {
    if (this.#end !== null) return;
    this.#ended('stopped');
    this.#res.cork(() => this.#res.end());
  }

  #look(): void {
    if (this.#end !== null) return;
    this.#flush();
    const now = this.#clock.now();
    if (this.#behindSince !== null) {
      if (now - this.#behindSince < SLOW_MS) return;
      this.#ended('slow');
      this.#res.close();
    } else if (now - this.#wroteAt >= ALIVE_MS) {
      this.#write(COMMENT);
    }
  }

  #flush(): void {
    // a write tells whether what was queued before it has gone; a comment is the shortest there is
    if (this.#behindSince !== null && !this.#write(COMMENT)) return;
    if (this.#waiting.length === 0) return;
    const text = this.#waiting.join('');
    this.#forgetWaiting();
    this.#write(text);
  }

  #forgetWaiting(): void {
    this.#waiting = [];
    this.#waitingCharacters = 0;
  }

  /** False when the peer has not taken all of it; it is queued, and nothing more may be until it has gone. */
  #write(text: string): boolean {
    let taken = false;
    this.#res.cork(() => {
      taken = this.#res.write(text);
    });
    const now = this.#clock.now();
    this.#wroteAt = now;
    this.#behindSince = taken ? null : (this.#behindSince ?? now);
    return taken;
  }

  #ended(end: StreamEnd): void {
    if (this.#end !== null) return;
    this.#end = end;
    this.#forgetWaiting();
    this.#stopLooking();
    this.#onEnd(end);
  }
}
