import { type IncomingMessage, request } from 'node:http';

/** A reader of server-sent events that can stop reading, as a page in a stuck tab does. */
export interface EventReader {
  status: number;
  headers: IncomingMessage['headers'];
  /** Of an answer that is no stream. */
  body(): Promise<string>;
  /** The next event's data, parsed; comments are passed over. Rejects when the stream has ended. */
  next<T>(): Promise<T>;
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
  const events: string[] = [];
  const askers: { resolve: (data: string) => void; reject: (error: Error) => void }[] = [];
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
      const data = lines.flatMap((line) => (line.startsWith('data: ') ? [line.slice(6)] : []));
      if (data.length === 0) {
        comments += 1;
        continue;
      }
      const asker = askers.shift();
      if (asker) asker.resolve(data.join('\n'));
      else events.push(data.join('\n'));
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
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    async body() {
      await ended;
      return all;
    },
    async next<T>() {
      const ready = events.shift();
      if (ready !== undefined) return JSON.parse(ready) as T;
      if (over) throw new Error('the stream has ended');
      return JSON.parse(await new Promise<string>((resolve, reject) => askers.push({ resolve, reject }))) as T;
    },
    waiting: () => events.length,
    comments: () => comments,
    pause: () => response.pause(),
    resume: () => response.resume(),
    ended,
    close: () => response.destroy(),
  };
}
