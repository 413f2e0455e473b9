import { performance } from 'node:perf_hooks';
import type { MessageStream } from '../../client/index.ts';
import { randomFile, Tally } from './demo-file.ts';
import { type DemoAnswer, type DemoRequest, demoAnswer } from './demo-protocol.ts';

type AnswerOf<A extends DemoAnswer['answer']> = Extract<DemoAnswer, { answer: A }>;

/** The app on the phone: asks one thing at a time. Throws when the other side does not do it or the connection breaks. */
export class DemoPhone {
  readonly #stream: MessageStream;

  constructor(stream: MessageStream) {
    this.#stream = stream;
  }

  async provision(newResumeTokenHash: string): Promise<AnswerOf<'provision'>> {
    await this.#ask({ ask: 'provision', reqId: crypto.randomUUID(), newResumeTokenHash });
    return this.#expect('provision');
  }

  async confirm(): Promise<AnswerOf<'confirm'>> {
    await this.#ask({ ask: 'confirm', reqId: crypto.randomUUID() });
    return this.#expect('confirm');
  }

  async run(command: string): Promise<string> {
    await this.#ask({ ask: 'run', command });
    return (await this.#expect('run')).output;
  }

  /** Milliseconds of one round trip, phone to desktop and back. */
  async roundTrip(payload: string): Promise<number> {
    const since = performance.now();
    await this.#ask({ ask: 'ping', payload });
    const { payload: echoed } = await this.#expect('ping');
    if (echoed !== payload) throw new Error('a round trip came back with something else');
    return performance.now() - since;
  }

  /** @returns the digest on which both sides agree */
  async download(bytes: number, onProgress: (bytes: number) => void): Promise<string> {
    await this.#ask({ ask: 'download', bytes });
    const tally = new Tally();
    while (tally.bytes < bytes) {
      const chunk = await this.#receive();
      if (typeof chunk === 'string') throw new Error(`the download broke off: ${chunk}`);
      tally.add(chunk);
      onProgress(tally.bytes);
    }
    return agree(tally, await this.#expect('file'));
  }

  async upload(bytes: number, onProgress: (bytes: number) => void): Promise<string> {
    await this.#ask({ ask: 'upload', bytes });
    const tally = new Tally();
    for (const chunk of randomFile(bytes)) {
      tally.add(chunk);
      await this.#stream.send(chunk);
      onProgress(tally.bytes);
    }
    return agree(tally, await this.#expect('file'));
  }

  #ask(request: DemoRequest): Promise<void> {
    return this.#stream.send(JSON.stringify(request));
  }

  async #expect<A extends DemoAnswer['answer']>(kind: A): Promise<AnswerOf<A>> {
    const message = await this.#receive();
    if (typeof message !== 'string') throw new Error(`bytes where ${kind} was due`);
    const answer = demoAnswer.parse(JSON.parse(message));
    if (answer.answer === 'error') throw new Error(`the desktop says: ${answer.message}`);
    if (answer.answer !== kind) throw new Error(`${answer.answer} where ${kind} was due`);
    return answer as AnswerOf<A>;
  }

  async #receive(): Promise<string | Uint8Array> {
    const message = await this.#stream.receive();
    if (message !== null) return message;
    const { code = 1006, reason = '' } = this.#stream.end ?? {};
    throw new Error(`the connection ended (${code} ${reason})`.replace(' )', ')'));
  }
}

function agree(mine: Tally, theirs: AnswerOf<'file'>): string {
  const sha256 = mine.sha256();
  if (theirs.bytes !== mine.bytes || theirs.sha256 !== sha256) {
    throw new Error(`the file changed on its way: ${mine.bytes} bytes ${sha256}, not ${theirs.bytes} ${theirs.sha256}`);
  }
  return sha256;
}
