export interface Timer {
  cancel(): void;
}

/** Time as the clients see it; tests put their own in its place. */
export interface Clock {
  /** Epoch milliseconds of the wall clock: it is compared with times that servers issue. */
  now(): number;
  after(ms: number, run: () => void): Timer;
}

/** Uniform in [0, 1). */
export type Random = () => number;

/** A longer `setTimeout` fires at once instead of late. */
const LONGEST_TIMEOUT_MS = 2_147_483_647;

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    const handle = setTimeout(run, Math.min(Math.max(ms, 0), LONGEST_TIMEOUT_MS));
    return { cancel: () => clearTimeout(handle) };
  },
};

/** @returns false when the signal cut the wait short */
export function sleep(clock: Clock, ms: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(false);
    const abort = () => {
      timer.cancel();
      resolve(false);
    };
    const timer = clock.after(ms, () => {
      signal.removeEventListener('abort', abort);
      resolve(true);
    });
    signal.addEventListener('abort', abort, { once: true });
  });
}

/** A signal that fires with its parent or after `ms`; `done` must be called once the work is over. */
export function deadline(clock: Clock, ms: number, parent?: AbortSignal): { signal: AbortSignal; done(): void } {
  const controller = new AbortController();
  const abort = () => controller.abort(parent?.reason);
  const timer = clock.after(ms, () => controller.abort(new Error(`no answer within ${ms} ms`)));
  if (parent?.aborted) abort();
  parent?.addEventListener('abort', abort, { once: true });
  return {
    signal: controller.signal,
    done() {
      timer.cancel();
      parent?.removeEventListener('abort', abort);
    },
  };
}

/** Settles with the work or rejects when the signal fires, whether or not the work heeds it. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
