import { randomBytes } from 'node:crypto';
import { Socket } from 'node:net';
import pg from 'pg';
import { type Clock, systemClock, type Timer } from './clock.ts';
import type { Database } from './database.ts';
import type { Logger } from './log.ts';

/**
 * Hears Postgres ring when the state of a cell changed. What it hears is a hint and never data: whoever hears it reads the
 * change log, and would read it a moment later anyway. So this may fail in any way but one: it must not look alive
 * while it hears nothing. A line that breaks, or no longer answers, is thrown away and dialled anew, for ever.
 *
 *   connecting ─ listening ─► testing ─ heard ─► hearing
 *       ▲                        └──── silence ──► deaf      (a pooler that accepts LISTEN and swallows what follows)
 *       └── retry ── waiting ◄── lost ── any
 */

export const DOORBELL_CHANNEL = 'relay_doorbell';

export type DoorbellState = 'connecting' | 'testing' | 'hearing' | 'deaf' | 'waiting' | 'stopped';
type DoorbellEvent = 'retry' | 'listening' | 'heard' | 'silence' | 'lost' | 'stop';

const NEXT: Record<DoorbellState, Record<DoorbellEvent, DoorbellState>> = {
  connecting: row('connecting', { listening: 'testing', lost: 'waiting' }),
  testing: row('testing', { heard: 'hearing', silence: 'deaf', lost: 'waiting' }),
  hearing: row('hearing', { lost: 'waiting' }),
  deaf: row('deaf', { heard: 'hearing', lost: 'waiting' }),
  waiting: row('waiting', { retry: 'connecting' }),
  stopped: row('stopped', { stop: 'stopped' }),
};

function row(
  same: DoorbellState,
  moves: Partial<Record<DoorbellEvent, DoorbellState>>,
): Record<DoorbellEvent, DoorbellState> {
  return {
    retry: same,
    listening: same,
    heard: same,
    silence: same,
    lost: same,
    stop: 'stopped',
    ...moves,
  };
}

const CONNECT_TIMEOUT_MS = 2_000;
const QUERY_TIMEOUT_MS = 2_000;
/** How often a quiet line is asked whether it is still there. */
const CHECK_MS = 5_000;
const SELF_TEST_MS = 2_000;
const DEAF_RETEST_MS = 60_000;
const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 5_000;

export interface DoorbellOptions {
  databaseUrl: string;
  /** Another connection: a line that rings itself may hear what nobody else would be sent. */
  db: Pick<Database, 'query'>;
  applicationName: string;
  /** Rung, or connected anew: look now. */
  onRing: () => void;
  onState: (state: DoorbellState) => void;
  log: Logger;
  clock?: Clock;
}

export interface Doorbell {
  state(): DoorbellState;
  /** Resolves when the connection and every timer are gone, also in the middle of dialling. */
  stop(): Promise<void>;
}

export function openDoorbell(options: DoorbellOptions): Doorbell {
  const bell = new Line(options);
  const done = bell.run();
  return {
    state: () => bell.state,
    stop: async () => {
      bell.stop();
      await done;
    },
  };
}

class Line {
  state: DoorbellState = 'connecting';
  readonly #options: DoorbellOptions;
  readonly #clock: Clock;
  readonly #testChannel = `relay_doorbell_test_${randomBytes(6).toString('hex')}`;
  #socket: Socket | null = null;
  #wake: (() => void) | null = null;
  #lost = false;
  #backoffMs = FIRST_BACKOFF_MS;
  #testDueAt = 0;

  constructor(options: DoorbellOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  async run(): Promise<void> {
    while (this.state !== 'stopped') {
      await this.#live();
      this.#move('lost');
      if (this.state !== 'waiting') return;
      await this.#pause(this.#backoffMs * (0.5 + Math.random() / 2));
      this.#backoffMs = Math.min(MAX_BACKOFF_MS, this.#backoffMs * 2);
      this.#move('retry');
    }
  }

  stop(): void {
    this.#move('stop');
    this.#socket?.destroy();
    this.#wake?.();
  }

  /** One connection, from dialling to its loss. */
  async #live(): Promise<void> {
    const { databaseUrl, applicationName, log } = this.#options;
    const socket = new Socket();
    this.#socket = socket;
    this.#lost = false;
    const client = new pg.Client({
      connectionString: databaseUrl,
      application_name: applicationName,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      query_timeout: QUERY_TIMEOUT_MS,
      keepAlive: true,
      // Ours, to destroy: in a black hole the client's own `end` waits for a reply that never comes.
      stream: () => socket,
    });
    const onLost = () => {
      this.#lost = true;
      this.#wake?.();
    };
    client.on('error', onLost);
    client.on('end', onLost);
    client.on('notification', (note) => this.#heard(note.channel));
    try {
      await client.connect();
      await client.query(`LISTEN ${DOORBELL_CHANNEL}; LISTEN ${this.#testChannel}`);
      this.#move('listening');
      this.#backoffMs = FIRST_BACKOFF_MS;
      this.#testDueAt = this.#clock.now();
      this.#options.onRing();
      await this.#attend(client);
    } catch (error) {
      if (this.state !== 'stopped') log.warn({ event: 'orca_relay_doorbell_lost', error });
    } finally {
      socket.destroy();
      client.end().catch(() => undefined);
    }
  }

  async #attend(client: pg.Client): Promise<void> {
    while (this.#usable()) {
      if (this.state === 'testing' || (this.state === 'deaf' && this.#clock.now() >= this.#testDueAt)) {
        await this.#selfTest();
      } else {
        await this.#pause(CHECK_MS);
        if (this.#usable()) await client.query('select 1');
      }
    }
  }

  /** Rings a channel of its own through another connection: does what is rung arrive here at all? */
  async #selfTest(): Promise<void> {
    const { db, log } = this.#options;
    try {
      await db.query('select pg_notify($1, $2)', [this.#testChannel, ''], { timeoutMs: SELF_TEST_MS });
    } catch {
      // Nothing was learnt about this line: the database cannot be asked now.
      await this.#pause(SELF_TEST_MS);
      return;
    }
    if (this.state !== 'hearing') await this.#pause(SELF_TEST_MS, () => this.state === 'hearing');
    if (this.state === 'hearing' || !this.#usable()) return;
    this.#testDueAt = this.#clock.now() + DEAF_RETEST_MS;
    if (this.state === 'testing') log.warn({ event: 'orca_relay_doorbell_deaf' });
    this.#move('silence');
  }

  #heard(channel: string): void {
    this.#move('heard');
    if (channel === DOORBELL_CHANNEL) this.#options.onRing();
    else this.#wake?.();
  }

  #usable(): boolean {
    return !this.#lost && this.state !== 'stopped';
  }

  #move(event: DoorbellEvent): void {
    const next = NEXT[this.state][event];
    if (next === this.state) return;
    this.state = next;
    this.#options.onState(next);
  }

  /** Waits, until woken and (where given) `until` holds, or the line is lost or stopped. */
  #pause(ms: number, until: () => boolean = () => false): Promise<void> {
    if (this.state === 'stopped') return Promise.resolve();
    return new Promise((resolve) => {
      let timer: Timer | undefined;
      const finish = () => {
        this.#clock.clearTimeout(timer);
        this.#wake = null;
        resolve();
      };
      timer = this.#clock.setTimeout(finish, ms);
      this.#wake = () => {
        if (!this.#usable() || until()) finish();
      };
    });
  }
}
