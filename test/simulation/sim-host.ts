import type { HostName } from '../../server/director/seat-view.ts';
import { between, pick } from '../chaos/random.ts';
import type { SimCell, SimSession } from './sim-cell.ts';
import type { SimDirector } from './sim-director.ts';
import type { VirtualTime } from './virtual-time.ts';

export interface SimHostWorld {
  time: VirtualTime;
  random: () => number;
  directors(): readonly SimDirector[];
  cellAt(url: string): SimCell | undefined;
  /** It begins to ask. */
  asks(host: HostName): void;
}

const STAYS_MS = { least: 5_000, most: 90_000 };
/** Sockets of which the cell does not see the end. */
const SILENT_SHARE = 0.3;
/** Grants that the host never gets, or dials in vain. */
const LOST_SHARE = 0.1;
const FIRST_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 8_000;

/** A desktop: asks any director, sits on the cell that it is told, loses its socket now and then, and asks again. */
export class SimHost {
  readonly name: HostName;
  readonly #world: SimHostWorld;
  readonly #region: string;
  session: SimSession | null = null;
  #failures = 0;
  #stopped = false;

  constructor(world: SimHostWorld, name: HostName, region: string) {
    this.#world = world;
    this.name = name;
    this.#region = region;
  }

  async live(): Promise<void> {
    const { time, random } = this.#world;
    while (!this.#stopped) {
      await this.#connect();
      if (this.session !== null) {
        this.#failures = 0;
        await this.#stay();
        await time.sleep(between(random, 0, 2_000));
        continue;
      }
      this.#failures += 1;
      const most = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** this.#failures);
      await time.sleep(between(random, 200, most));
    }
  }

  /** It dials no more; a seat that it has it keeps. */
  stop(): void {
    this.#stopped = true;
  }

  async #connect(): Promise<void> {
    const { time, random, directors, cellAt } = this.#world;
    this.#world.asks(this.name);
    const decision = await pick(random, directors()).ask(this.name, this.#region);
    if ('refusal' in decision) {
      await time.sleep(Math.min(decision.refusal.retryAfterMs ?? 1_000, MAX_BACKOFF_MS));
      return;
    }
    const { cellUrl, epoch } = decision.granted.seat;
    await time.sleep(between(random, 1, 50));
    const cell = cellAt(cellUrl);
    if (cell === undefined || random() < LOST_SHARE) return;
    const hello = await cell.hello(this.name, epoch, () => this.#lost(cell, epoch));
    if ('seated' in hello && hello.seated.state !== 'closed') this.session = hello.seated;
  }

  #lost(cell: SimCell, epoch: number): void {
    if (this.session?.cell === cell && this.session.epoch === epoch) this.session = null;
  }

  async #stay(): Promise<void> {
    const { time, random } = this.#world;
    const until = time.now() + between(random, STAYS_MS.least, STAYS_MS.most);
    while (this.session !== null && (time.now() < until || this.#stopped)) await time.sleep(250);
    const { session } = this;
    if (session === null) return;
    this.session = null;
    session.cell.breakSocket(session, random() < SILENT_SHARE);
  }
}
