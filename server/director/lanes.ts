import type { Clock, Timer } from '../clock.ts';

/**
 * Lanes bound what a director sends to the database at once (04, director). Every ask starts in `sticky`; one that needs a
 * place goes on to `placement`, so that a wave of placements cannot starve reconnects. Phones' `resolve` has its own slot
 * among the placement permits and goes before whoever waits for them.
 *
 * A lane's queue is as long as its waiting time is worth at the measured rate, and what it turns away it spreads over the
 * time it needs for what is already promised, so that a wave comes back evenly and never faster than it can be served (P10).
 */

export type LaneName = 'sticky' | 'placement' | 'resolve';

/** Why a lane turned an ask away; the closed set behind logs and metric labels. */
export type LaneRefusal = 'queue-full' | 'wait-timeout' | 'superseded' | 'abandoned' | 'stopping';

export interface LaneOptions {
  name: LaneName;
  /** Asks served at once. */
  concurrency: number;
  /** Upper bound of the queue, whatever the rate. */
  queueMax: number;
  waitMs: number;
  /** The least that somebody turned away is told to wait. */
  minRetryMs: number;
}

export interface Pass {
  ok: true;
  /**
   * Frees the place; once, however often it is called.
   * @param served false when nothing was: how long a failure took says nothing about the rate
   */
  leave(served?: boolean): void;
}
export interface Refused {
  ok: false;
  reason: LaneRefusal;
  retryAfterMs: number;
}
export type Entry = Pass | Refused;

/** Before anything was measured: an unhurried database call. */
const FIRST_SERVICE_MS = 5;
const SERVICE_WEIGHT = 0.2;
const MIN_SERVICE_MS = 0.2;
const MAX_SERVICE_MS = 15_000;
const MAX_RETRY_MS = 300_000;

/** Places that several lanes share; the lane that joined first is served first. */
export class Permits {
  readonly #total: number;
  #taken = 0;
  readonly #lanes: Lane[] = [];

  constructor(total: number) {
    this.#total = total;
  }

  join(lane: Lane): void {
    this.#lanes.push(lane);
  }

  take(): boolean {
    if (this.#taken >= this.#total) return false;
    this.#taken += 1;
    return true;
  }

  giveBack(): void {
    this.#taken -= 1;
    for (const lane of this.#lanes) lane.serveNext();
  }
}

interface Waiter {
  host: string | null;
  answer: (entry: Entry) => void;
  timer: Timer;
  forget: () => void;
}

export class Lane {
  readonly name: LaneName;
  readonly #options: LaneOptions;
  readonly #permits: Permits;
  readonly #clock: Clock;
  readonly #queue = new Set<Waiter>();
  #running = 0;
  #serviceMs = FIRST_SERVICE_MS;
  #promisedUntil = 0;
  #stopped = false;

  constructor(options: LaneOptions, permits: Permits, clock: Clock) {
    this.name = options.name;
    this.#options = options;
    this.#permits = permits;
    this.#clock = clock;
    permits.join(this);
  }

  get waiting(): number {
    return this.#queue.size;
  }

  get running(): number {
    return this.#running;
  }

  /** How many may wait: what the lane serves in `waitMs` at the measured rate, and at least one a place. */
  get queueBound(): number {
    const worth = Math.floor((this.#options.waitMs * this.#options.concurrency) / this.#serviceMs);
    return Math.min(this.#options.queueMax, Math.max(this.#options.concurrency, worth));
  }

  /**
   * Waits for a place: `waitMs` at most.
   * @param host names the waiter for {@link supersede}
   * @param signal aborts when the asker has hung up
   */
  enter(host: string | null, signal?: AbortSignal): Promise<Entry> | Entry {
    if (this.#stopped) return this.#refuse('stopping');
    if (signal?.aborted) return this.#refuse('abandoned');
    if (this.#queue.size === 0 && this.#admit()) return this.#pass();
    if (this.#queue.size >= this.queueBound) return this.#refuse('queue-full');
    return new Promise((answer) => this.#wait(host, answer, signal));
  }

  /** Turns away whoever waits here for this host: its place is being found by a more urgent ask. */
  supersede(host: string): void {
    for (const waiter of this.#queue) if (waiter.host === host) this.#drop(waiter, 'superseded');
  }

  /** Serves those who wait as far as there is room; called whenever a place comes free. */
  serveNext(): void {
    for (const waiter of this.#queue) {
      if (!this.#admit()) return;
      this.#remove(waiter);
      waiter.answer(this.#pass());
    }
  }

  /** Milliseconds in which the lane serves one ask, at the measured rate. */
  get slotMs(): number {
    return this.#serviceMs / this.#options.concurrency;
  }

  /**
   * How long somebody turned away should stay away: until the backlog is served, and each one a slot later than the one
   * before.
   */
  promise(minRetryMs = this.#options.minRetryMs): number {
    const now = this.#clock.now();
    const slot = this.slotMs;
    const backlog = Math.max(minRetryMs, (this.#queue.size + 1) * slot);
    const at = Math.min(Math.max(this.#promisedUntil + slot, now + backlog), now + MAX_RETRY_MS);
    this.#promisedUntil = at;
    return at - now;
  }

  stop(): void {
    this.#stopped = true;
    for (const waiter of this.#queue) this.#drop(waiter, 'stopping');
  }

  #admit(): boolean {
    if (this.#running >= this.#options.concurrency || !this.#permits.take()) return false;
    this.#running += 1;
    return true;
  }

  #pass(): Pass {
    const admittedAt = this.#clock.now();
    let left = false;
    return {
      ok: true,
      leave: (served = true) => {
        if (left) return;
        left = true;
        this.#running -= 1;
        if (served) this.#measure(this.#clock.now() - admittedAt);
        this.#permits.giveBack();
      },
    };
  }

  #measure(tookMs: number): void {
    const bounded = Math.min(MAX_SERVICE_MS, Math.max(MIN_SERVICE_MS, tookMs));
    this.#serviceMs += SERVICE_WEIGHT * (bounded - this.#serviceMs);
  }

  #wait(host: string | null, answer: (entry: Entry) => void, signal: AbortSignal | undefined): void {
    const abandon = () => this.#drop(waiter, 'abandoned');
    const waiter: Waiter = {
      host,
      answer,
      timer: this.#clock.setTimeout(() => this.#drop(waiter, 'wait-timeout'), this.#options.waitMs),
      forget: () => signal?.removeEventListener('abort', abandon),
    };
    signal?.addEventListener('abort', abandon, { once: true });
    this.#queue.add(waiter);
  }

  #drop(waiter: Waiter, reason: LaneRefusal): void {
    if (this.#remove(waiter)) waiter.answer(this.#refuse(reason));
  }

  #remove(waiter: Waiter): boolean {
    this.#clock.clearTimeout(waiter.timer);
    waiter.forget();
    return this.#queue.delete(waiter);
  }

  #refuse(reason: LaneRefusal): Refused {
    return { ok: false, reason, retryAfterMs: RETRY[reason] === 'slot' ? this.promise() : this.#options.minRetryMs };
  }
}

/** Whether somebody turned away for this reason takes a slot of the time that the lane promises out. */
const RETRY: Record<LaneRefusal, 'slot' | 'soon'> = {
  'queue-full': 'slot',
  'wait-timeout': 'slot',
  superseded: 'soon',
  abandoned: 'soon',
  stopping: 'soon',
};
