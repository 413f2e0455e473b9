import { type IncomingMessage, request } from 'node:http';

export interface ReadEvent {
  id: string | undefined;
  event: string | undefined;
  data: string;
}

/** A reader of server-sent events that can stop reading, as a page in a stuck tab does. */
export interface EventReader {
  status: number;
  headers: IncomingMessage['headers'];
  /** Of an answer that is no stream. */
  body(): Promise<string>;
  /** The next event's data, parsed; comments are passed over. Rejects when the stream has ended. */
  next<T>(): Promise<T>;
  /** The next event as it came. */
  nextEvent(): Promise<ReadEvent>;
  /** Events that came and nobody asked for yet. */
  waiting(): number;
  comments(): number;
  pause(): void;
  resume(): void;
  ended: Promise<void>;
  close(): void;
}

export function readEvents(url: string, headers: Record<string, string> = {}): Promise<EventReader> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { headers }, (response) => resolve(readerOf(response)));
    asked.on('error', reject);
    asked.end();
  });
}

function readerOf(response: IncomingMessage): EventReader {
  const events: ReadEvent[] = [];
  const askers: { resolve: (event: ReadEvent) => void; reject: (error: Error) => void }[] = [];
  let rest = '';
  let all = '';
  let comments = 0;
  let over = false;
  response.setEncoding('utf8');
  response.on('data', (text: string) => {
    all += text;
    const blocks = (rest + text).split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const lines = block.split('\n');
      const field = (name: string) =>
        lines.flatMap((line) => (line.startsWith(`${name}: `) ? [line.slice(name.length + 2)] : []));
      const data = field('data');
      if (data.length === 0) {
        comments += 1;
        continue;
      }
      const event = { id: field('id')[0], event: field('event')[0], data: data.join('\n') };
      const asker = askers.shift();
      if (asker) asker.resolve(event);
      else events.push(event);
    }
  });
  const ended = new Promise<void>((resolve) => {
    const end = () => {
      over = true;
      for (const asker of askers.splice(0)) asker.reject(new Error('the stream has ended'));
      resolve();
    };
    response.on('end', end);
    response.on('close', end);
    response.on('error', end);
  });
  async function nextEvent(): Promise<ReadEvent> {
    const ready = events.shift();
    if (ready !== undefined) return ready;
    if (over) throw new Error('the stream has ended');
    return new Promise((resolve, reject) => askers.push({ resolve, reject }));
  }
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    async body() {
      await ended;
      return all;
    },
    async next<T>() {
      return JSON.parse((await nextEvent()).data) as T;
    },
    nextEvent,
    waiting: () => events.length,
    comments: () => comments,
    pause: () => response.pause(),
    resume: () => response.resume(),
    ended,
    close: () => response.destroy(),
  };
}
