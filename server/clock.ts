/**
 * Time as a process measures it: monotonic, so that a corrected wall clock neither fires a timer early nor holds one
 * back. Every deadline in a cell is set on a `Clock`, so that a test can turn it by hand.
 */

/** What `setTimeout` returns; opaque, good only for `clearTimeout` of the same clock. */
export interface Timer {
  readonly cancelled: boolean;
}

export interface Clock {
  /** Milliseconds since an arbitrary origin; never goes back. */
  now(): number;
  /** Milliseconds since the Unix epoch, for what peers read: token expiry, `leaseExpiresAt`, ping `t`. */
  wallNow(): number;
  setTimeout(callback: () => void, delayMs: number): Timer;
  /** Harmless on a timer that has fired, was cleared, or is undefined. */
  clearTimeout(timer: Timer | undefined): void;
}

/** What goes by the clock, and what peers are held to (`peer-time.ts`). */
export interface Clocks {
  readonly clock: Clock;
  readonly peerTime: Clock;
}

interface SystemTimer extends Timer {
  cancelled: boolean;
  handle: NodeJS.Timeout | undefined;
}

/** The machine's own time. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  setTimeout(callback, delayMs) {
    const timer: SystemTimer = { cancelled: false, handle: undefined };
    timer.handle = setTimeout(() => {
      timer.handle = undefined;
      if (!timer.cancelled) callback();
    }, delayMs);
    return timer;
  },
  clearTimeout(timer) {
    if (timer === undefined) return;
    const own = timer as SystemTimer;
    own.cancelled = true;
    if (own.handle !== undefined) clearTimeout(own.handle);
    own.handle = undefined;
  },
};

/** A clock whose callbacks end nothing but themselves: an exception in one is handed over. */
export function guardedClock(clock: Clock, report: (error: unknown) => void): Clock {
  return {
    now: () => clock.now(),
    wallNow: () => clock.wallNow(),
    setTimeout(callback, delayMs) {
      return clock.setTimeout(() => {
        try {
          callback();
        } catch (error) {
          report(error);
        }
      }, delayMs);
    },
    clearTimeout: (timer) => clock.clearTimeout(timer),
  };
}

/** Calls `tick` every `intervalMs` until the returned function is called, whether it throws or not; never overlaps a slow synchronous tick. */
export function every(clock: Clock, intervalMs: number, tick: () => void): () => void {
  let stopped = false;
  let timer: Timer | undefined;
  const arm = () => {
    timer = clock.setTimeout(() => {
      if (stopped) return;
      try {
        tick();
      } finally {
        if (!stopped) arm();
      }
    }, intervalMs);
  };
  arm();
  return () => {
    stopped = true;
    clock.clearTimeout(timer);
  };
}
