import type { WithheldVerdict } from '../../contract/events.ts';
import type { Clock, Timer } from '../clock.ts';
import { type Database, toDatabaseError } from '../database.ts';
import type { EventStream, StreamEnd } from '../event-stream.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import { type FleetSnapshot, readFleetSnapshot } from './fleet-snapshot.ts';

/**
 * The fleet for everyone who watches it: read once for all, when the change log says that something changed and now and
 * then without being told; not at all while nobody watches.
 */

/** More watchers than this are refused. */
export const MAX_WATCHERS = 32;
/** Changes that come together are shown together. */
const GATHER_MS = 250;
/** Reading takes at most this share of the time: one part reading, four parts not. */
const REST_PER_READ = 4;
/** Heartbeats change no state, and are not in the log. */
const IDLE_MS = 2_000;
const RETRY_MS = 1_000;

/** One event of the stream; what is older than a message is told in milliseconds, so that no two clocks are compared. */
export interface FleetMessage {
  database: { ok: true } | { ok: false; reason: string; away: number };
  /** The last one that could be read; null before the first. */
  fleet: FleetSnapshot | null;
  /** Age of it. */
  age: number;
  /** As this director's polls find it now, whatever the database says. */
  withheld: readonly WithheldVerdict[];
}

export class FleetFeed {
  readonly #db: Pick<Database, 'query'>;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #meters: Meters;
  readonly #withheld: () => readonly WithheldVerdict[];
  readonly #watchers = new Set<EventStream>();
  #fleet: FleetSnapshot | null = null;
  #readAt = 0;
  #failure: { reason: string; since: number } | null = null;
  #reading: Promise<void> | null = null;
  #changed = false;
  #restUntil = 0;
  #timer: Timer | undefined;
  #dueAt = 0;
  #stopped = false;

  constructor(
    db: Pick<Database, 'query'>,
    log: Logger,
    metrics: Metrics,
    clock: Clock,
    withheld: () => readonly WithheldVerdict[],
  ) {
    this.#withheld = withheld;
    this.#db = db;
    this.#log = log;
    this.#clock = clock;
    this.#meters = measure(metrics, () => this.#watchers.size);
  }

  get full(): boolean {
    return this.#watchers.size >= MAX_WATCHERS;
  }

  refused(reason: 'full' | 'loopback_only' | 'unauthorized'): void {
    this.#meters.refused.inc({ reason });
  }

  watch(stream: EventStream): void {
    this.#watchers.add(stream);
    if (this.#fleet !== null || this.#failure !== null) stream.offer(this.#message());
    this.#readWithin(0);
  }

  leave(stream: EventStream, reason: StreamEnd): void {
    this.#watchers.delete(stream);
    this.#meters.ended.inc({ reason });
    if (reason === 'slow') this.#log.warn({ event: 'orca_relay_fleet_watcher_dropped', reason });
  }

  /** Something changed: those who watch see it within 250 ms, or what a busy database allows. */
  changed(): void {
    if (this.#watchers.size === 0) return;
    this.#changed = true;
    this.#readWithin(GATHER_MS);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#clock.clearTimeout(this.#timer);
    for (const stream of [...this.#watchers]) stream.stop();
    await this.#reading;
  }

  #readWithin(ms: number): void {
    if (this.#stopped || this.#reading !== null) return;
    const at = Math.max(this.#clock.now() + ms, this.#restUntil);
    if (this.#timer !== undefined && this.#dueAt <= at) return;
    this.#clock.clearTimeout(this.#timer);
    this.#dueAt = at;
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = undefined;
      if (this.#stopped || this.#watchers.size === 0) return;
      this.#reading = this.#read().finally(() => {
        this.#reading = null;
        this.#readWithin(this.#changed ? GATHER_MS : this.#failure ? RETRY_MS : IDLE_MS);
      });
    }, at - this.#clock.now());
  }

  async #read(): Promise<void> {
    const startedAt = this.#clock.now();
    this.#changed = false;
    try {
      this.#fleet = await readFleetSnapshot(this.#db);
      this.#readAt = startedAt;
      this.#failure = null;
    } catch (error) {
      if (this.#failure === null) this.#log.warn({ event: 'orca_relay_fleet_read_failed', error });
      this.#failure = { since: this.#failure?.since ?? startedAt, reason: toDatabaseError(error).kind };
    }
    const now = this.#clock.now();
    this.#restUntil = now + REST_PER_READ * (now - startedAt);
    this.#meters.reads.inc({ outcome: this.#failure ? 'failed' : 'ok' });
    const message = this.#message();
    for (const stream of [...this.#watchers]) stream.offer(message);
  }

  #message(): string {
    const now = this.#clock.now();
    const message: FleetMessage = {
      database: this.#failure
        ? { ok: false, reason: this.#failure.reason, away: Math.round(now - this.#failure.since) }
        : { ok: true },
      fleet: this.#fleet,
      age: this.#fleet === null ? 0 : Math.round(now - this.#readAt),
      withheld: this.#withheld(),
    };
    return JSON.stringify(message);
  }
}

type Meters = ReturnType<typeof measure>;

function measure(metrics: Metrics, watchers: () => number) {
  metrics.gauge('orca_relay_fleet_watchers', 'Pages that watch the fleet', [], watchers);
  return {
    ended: metrics.counter('orca_relay_fleet_watchers_ended_total', 'Watchers that left, and why', ['reason']),
    refused: metrics.counter('orca_relay_fleet_page_refused_total', 'Requests for the fleet page refused', ['reason']),
    reads: metrics.counter('orca_relay_fleet_reads_total', 'Times the fleet was read for its page', ['outcome']),
  };
}
