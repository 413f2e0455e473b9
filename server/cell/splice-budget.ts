/** What the budget needs to know of a queue. */
export interface Queued {
  buffered: number;
}

/** All bytes that wait for slow peers in this process, and where. */
export class SpliceBudget<Queue extends Queued> {
  readonly #waiting = new Set<Queue>();
  #total = 0;

  get total(): number {
    return this.#total;
  }

  get waiting(): ReadonlySet<Queue> {
    return this.#waiting;
  }

  set(queue: Queue, buffered: number): void {
    this.#total += buffered - queue.buffered;
    queue.buffered = buffered;
    if (buffered > 0) this.#waiting.add(queue);
    else this.#waiting.delete(queue);
  }

  longest(): Queue | undefined {
    let longest: Queue | undefined;
    for (const queue of this.#waiting) if (longest === undefined || queue.buffered > longest.buffered) longest = queue;
    return longest;
  }
}
