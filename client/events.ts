/** The least of an event emitter, the same in Node and in browsers. */
export class Events<Map extends object> {
  readonly #listeners: { [K in keyof Map]?: Set<(event: Map[K]) => void> } = {};

  /** @returns a function that takes the listener away again */
  on<K extends keyof Map>(name: K, listener: (event: Map[K]) => void): () => void {
    const listeners = this.#listeners[name] ?? new Set();
    this.#listeners[name] = listeners;
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  /** Resolves with the next event of that name that passes the test. */
  next<K extends keyof Map>(name: K, test: (event: Map[K]) => boolean = () => true): Promise<Map[K]> {
    return new Promise((resolve) => {
      const off = this.on(name, (event) => {
        if (!test(event)) return;
        off();
        resolve(event);
      });
    });
  }

  /**
   * Listeners run after the code that emits, in order: whatever they call or throw, a state machine is never caught in
   * the middle of a step.
   */
  protected emit<K extends keyof Map>(name: K, event: Map[K]): void {
    for (const listener of this.#listeners[name] ?? []) queueMicrotask(() => listener(event));
  }
}
