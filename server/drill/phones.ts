import { type MessageStream, pairWithInvite } from '../../client/index.ts';
import type { Member } from './crowd.ts';

const ANSWER_MS = 5_000;

/** Phones that are connected to hosts of a drill and speak once a second; what they say comes back. */
export class Phones {
  readonly #streams: MessageStream[] = [];
  #timer: NodeJS.Timeout | undefined;
  asked = 0;
  answered = 0;
  lost = 0;

  /** Pairs one phone with each host. */
  async call(members: readonly Member[]): Promise<void> {
    for (const { host } of members) {
      const { stream } = await pairWithInvite(await host.invite(`drill-${this.#streams.length}`));
      this.#streams.push(stream);
      void stream.closed.then(() => {
        this.lost += 1;
      });
    }
    this.#timer = setInterval(() => {
      for (const stream of this.#streams) void this.#ask(stream);
    }, 1_000);
  }

  /** Counts from here. */
  reset(): void {
    this.asked = 0;
    this.answered = 0;
    this.lost = 0;
  }

  stop(): void {
    clearInterval(this.#timer);
    for (const stream of this.#streams) stream.terminate();
  }

  async #ask(stream: MessageStream): Promise<void> {
    const word = `${this.asked}`;
    this.asked += 1;
    try {
      await stream.send(word);
      const late = new Promise<null>((resolve) => setTimeout(resolve, ANSWER_MS, null).unref());
      if ((await Promise.race([stream.receive(), late])) === word) this.answered += 1;
    } catch {
      // a phone whose connection is gone is counted by its end
    }
  }
}
