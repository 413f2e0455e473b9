import { type Database, DatabaseError, openDatabase } from '../../server/database.ts';
import { createLogger } from '../../server/log.ts';
import type { ParamsOf, RelayFunction, ResultOf } from '../../server/sql-interface.ts';
import type { FreshDatabase } from '../support/database.ts';
import type { VirtualTime } from './virtual-time.ts';

/** Its clock is brought to the simulation's when it is behind by more than this. */
const CLOCK_STEP_MS = 1_000;

/** Sees every call on its way: what a fault makes of it, and what came of it. */
export interface CallWatch {
  before<F extends RelayFunction>(fn: F, params: ParamsOf<F>): ParamsOf<F>;
  after<F extends RelayFunction>(fn: F, params: ParamsOf<F>, result: ResultOf<F>): void;
}

/**
 * Postgres as a simulation has it: real functions on a real server, one call at a time so that a seed decides everything, on
 * a clock that follows the virtual one. It can be away.
 */
export class SimDatabase implements Database {
  readonly poolMax = 1;
  away = false;
  readonly #time: VirtualTime;
  readonly #fresh: FreshDatabase;
  readonly #real: Database;
  readonly #watch: CallWatch;
  #clockAt = Number.NEGATIVE_INFINITY;
  #last: Promise<unknown> = Promise.resolve();

  constructor(time: VirtualTime, fresh: FreshDatabase, watch: CallWatch) {
    this.#time = time;
    this.#fresh = fresh;
    this.#watch = watch;
    const log = createLogger({ role: 'director', level: 'silent' });
    this.#real = openDatabase({ url: fresh.url, applicationName: 'simulation', poolMax: 1, log });
  }

  /** What the functions choose at random is decided by the seed. */
  async seed(value: number): Promise<void> {
    await this.#real.query('select setseed($1)', [value]);
  }

  call<F extends RelayFunction>(fn: F, params: ParamsOf<F>): Promise<ResultOf<F>> {
    return this.#inTurn(async () => {
      const result = await this.#real.call(fn, this.#watch.before(fn, params));
      this.#watch.after(fn, params, result);
      return result;
    });
  }

  query<R>(text: string, values: readonly unknown[] = []): Promise<R[]> {
    return this.#inTurn(() => this.#real.query<R>(text, values));
  }

  waiters(): number {
    return this.away ? 1 : 0;
  }

  oldestWaitMs(): number {
    return this.away ? 10_000 : 0;
  }

  close(): Promise<void> {
    return this.#real.close();
  }

  #inTurn<R>(work: () => Promise<R>): Promise<R> {
    if (this.away) return this.#unanswered();
    const mine = this.#last.then(() =>
      this.#time.reallyTakes(async () => {
        await this.#setClock();
        return work();
      }),
    );
    this.#last = mine.catch(() => undefined);
    return mine;
  }

  /** As a caller sees a server that is not there. */
  async #unanswered(): Promise<never> {
    await this.#time.sleep(500);
    throw new DatabaseError('unavailable', 'the simulated server is away');
  }

  async #setClock(): Promise<void> {
    const now = this.#time.wallNow();
    if (now - this.#clockAt < CLOCK_STEP_MS) return;
    this.#clockAt = now;
    await this.#fresh.setClock(now);
  }
}
