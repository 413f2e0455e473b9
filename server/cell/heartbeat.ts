import { LIMITS } from '../../contract/index.ts';
import type { Timer } from '../clock.ts';
import type { HeartbeatAnswer, HeartbeatLoad } from '../sql-interface.ts';
import { type CellCore, callerOf } from './cell-core.ts';

/** After a failure: soon, then less soon, then so until it is heard again; three missed beats make a cell unheard. */
const RETRY_MS = [1_000, 2_000, 4_000] as const;
const ATTEMPT_TIMEOUT_MS = 5_000;
/** The last word of a process that leaves must not hold it up. */
const FAREWELL_TIMEOUT_MS = 1_000;
/** A timer that comes this late says that the process was not running. */
const LATE_MS = 1_000;

type Reaction = 'heard' | 'retry' | 'stand-down';

const REACTIONS: Record<HeartbeatAnswer, Reaction> = {
  ok: 'heard',
  stale_connection_snapshot: 'retry',
  cell_not_found: 'retry',
  cell_origin_mismatch: 'retry',
  cell_region_mismatch: 'retry',
  cell_connection_telemetry_mismatch: 'retry',
  cell_connection_limit_not_configured: 'retry',
  stale_cell_incarnation: 'stand-down',
};

export interface HeartbeatSource {
  url(): string;
  /** Whether new hosts may be placed here. */
  ready(): boolean;
  /** Each call advances the watermark. */
  load(): HeartbeatLoad;
  /** What the operator typed or forgot, for the one line that helps. */
  registration(): string;
}

/** Tells Postgres every 15 s that this process is there and what it carries; one attempt at a time, each bounded. */
export class Heartbeat {
  readonly #core: CellCore;
  readonly #source: HeartbeatSource;
  #timer: Timer | undefined;
  #dueAt = 0;
  #failures = 0;
  #accepted = false;
  #stopped = false;
  #beating = false;
  #again = false;
  #lastAnswer: string | null = null;
  #firstAccepted: () => void = () => {};
  /** Resolves with the first beat that was accepted. */
  readonly accepted: Promise<void> = new Promise((resolve) => {
    this.#firstAccepted = resolve;
  });

  constructor(core: CellCore, source: HeartbeatSource) {
    this.#core = core;
    this.#source = source;
  }

  /** True once this process is known to Postgres: before that it takes no hosts. */
  get heard(): boolean {
    return this.#accepted;
  }

  start(): void {
    this.#dueAt = this.#core.clock.now();
    void this.#beat();
  }

  /** One beat more than the regular ones, which count from it. */
  soon(): void {
    if (this.#stopped || !this.#accepted) return;
    this.#again = this.#beating;
    if (this.#beating) return;
    this.#core.clock.clearTimeout(this.#timer);
    this.#dueAt = this.#core.clock.now();
    void this.#beat();
  }

  stop(): void {
    this.#stopped = true;
    this.#core.clock.clearTimeout(this.#timer);
  }

  /** One last beat that says `ready: false`, so that nobody is placed here in the meantime. */
  async farewell(): Promise<void> {
    this.stop();
    if (!this.#accepted) return;
    await this.#send(FAREWELL_TIMEOUT_MS).catch(() => undefined);
  }

  async #beat(): Promise<void> {
    const { core, source } = { core: this.#core, source: this.#source };
    this.#beating = true;
    const lateMs = core.clock.now() - this.#dueAt;
    core.metrics.heartbeatLateness.set(Math.max(0, lateMs) / 1_000);
    if (lateMs > LATE_MS) core.log.warn({ event: 'orca_relay_heartbeat_late', lateMs: Math.round(lateMs) });
    // Without token keys nobody can be let in, so the first beat waits for them, in bounded time.
    if (!core.tokens.keysLoaded()) await core.tokens.ready().catch(() => undefined);
    let answer: HeartbeatAnswer | 'database_error';
    try {
      answer = await this.#send(ATTEMPT_TIMEOUT_MS);
    } catch (error) {
      answer = 'database_error';
      core.log.warn({ event: 'orca_relay_heartbeat_failed', error });
    }
    if (this.#stopped) return;
    core.metrics.heartbeats.inc({ answer });
    const reaction = answer === 'database_error' ? 'retry' : REACTIONS[answer];
    if (reaction === 'stand-down') {
      core.log.error({ event: 'orca_relay_cell_superseded', answer });
      core.standDown();
      return;
    }
    if (reaction === 'heard') this.#noteHeard();
    else if (answer !== 'database_error' && answer !== this.#lastAnswer) {
      core.log.error({ event: 'orca_relay_heartbeat_refused', answer }, explain(answer, source.registration()));
    }
    this.#lastAnswer = answer;
    this.#schedule(reaction === 'heard');
  }

  #noteHeard(): void {
    if (this.#accepted) return;
    this.#accepted = true;
    this.#core.log.info({ event: 'orca_relay_cell_heard' });
    this.#firstAccepted();
  }

  #schedule(heard: boolean): void {
    const { clock } = this.#core;
    this.#beating = false;
    this.#failures = heard ? 0 : this.#failures + 1;
    const regular = Math.max(this.#dueAt + LIMITS.heartbeatIntervalMs, clock.now());
    const retry = clock.now() + (RETRY_MS[Math.min(this.#failures, RETRY_MS.length) - 1] ?? 0);
    this.#dueAt = heard ? (this.#again ? clock.now() : regular) : retry;
    this.#again = false;
    this.#timer = clock.setTimeout(() => void this.#beat(), this.#dueAt - clock.now());
  }

  #send(timeoutMs: number): Promise<HeartbeatAnswer> {
    const { identity, db } = this.#core;
    return db.call(
      'heartbeat',
      {
        ...callerOf(this.#core),
        url: this.#source.url(),
        region: identity.region,
        started_at: identity.startedAt,
        ready: this.#source.ready(),
        load: this.#source.load(),
      },
      { timeoutMs },
    );
  }
}

/** What an operator can do about an answer. */
function explain(answer: HeartbeatAnswer, registration: string): string {
  switch (answer) {
    case 'cell_not_found':
      return `Postgres does not know this cell. Register it: ${registration}`;
    case 'cell_origin_mismatch':
      return 'this cell is registered under another URL: check ORCA_RELAY_CELL_URL against relay_v1.fleet';
    case 'cell_region_mismatch':
      return 'this cell is registered in another region: check ORCA_RELAY_REGION against relay_v1.fleet';
    case 'cell_connection_telemetry_mismatch':
    case 'cell_connection_limit_not_configured':
      return 'hard cap and unobserved bound differ from what is registered: check ORCA_RELAY_CELL_CONNECTION_HARD_CAP and ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND';
    default:
      return 'the heartbeat was refused';
  }
}
