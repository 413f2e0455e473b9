import { every } from '../clock.ts';
import { hostDigest } from '../log.ts';
import type { LeaseRenewal, ReregisteredControl } from '../sql-interface.ts';
import { type CellCore, callerOf } from './cell-core.ts';
import type { ControlSession } from './control-session.ts';
import { hostKey } from './seats.ts';

const TICK_MS = 100;
/** Small enough that no host waits long for its row, and few enough calls for a full cell. */
const BATCH_ROWS = 50;
const FIRST_BACKOFF_MS = 250;
const MAX_BACKOFF_MS = 5_000;
const GIVE_UP_AFTER = 20;
const STALLED_LOG_MS = 60_000;

export type ReregistrationOutcome = ReregisteredControl['outcome'] | 'unanswered';

/**
 * - `leased`: it has its lease.
 * - `again`: not now; says nothing against the host.
 * - `unrecorded`: its seat is newer than the row. Nobody outranks it, and a director that lives records it soon: refused
 *   while one is heard, else not now.
 * - `refused`: the database answered, and does not know the host here.
 */
export type ReregistrationReaction = 'leased' | 'again' | 'unrecorded' | 'refused' | 'stand-down';

export const REREGISTRATION_REACTIONS: Record<ReregistrationOutcome, ReregistrationReaction> = {
  active: 'leased',
  busy: 'again',
  superseded: 'again',
  unanswered: 'again',
  behind: 'unrecorded',
  no_assignment: 'unrecorded',
  wrong_cell: 'refused',
  wrong_epoch: 'refused',
  stale_cell_incarnation: 'stand-down',
};

/** `reserve-mode` 1.7: a third of the pool, or what the flags say, and two connections are always left alone. */
export function reregisterInFlight(poolMax: number, flag: number | undefined): number {
  return Math.max(1, flag === undefined ? Math.floor(poolMax / 3) : Math.min(flag, poolMax - 2));
}

/** After so many attempts that failed. */
export function reregisterBackoffMs(failures: number): number {
  return Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** failures);
}

interface Attempt {
  refusals: number;
  failures: number;
  dueAt: number;
  inFlight: boolean;
}

/** What a run came to, for the line at its end. */
interface Run {
  since: number;
  leased: number;
  gaveUp: number;
  stop: () => void;
}

export interface ReregistrationSource {
  /** Whether the cell has left reserve mode. */
  wanted(): boolean;
  inFlight(): number;
  /** No director is heard that could record a seat, or find the host another. */
  directorsSilent(): boolean;
}

/**
 * Gives every host that was seated from memory its lease, once the cell has left reserve mode, while it stays connected (90).
 * A database that says no is believed in the end; one that says nothing closes nobody.
 */
export class Reregistration {
  readonly #coreOf: () => CellCore;
  readonly #source: ReregistrationSource;
  readonly #attempts = new Map<ControlSession, Attempt>();
  #run: Run | null = null;
  #calls = 0;
  #stalledSaidAt = Number.NEGATIVE_INFINITY;

  constructor(core: () => CellCore, source: ReregistrationSource) {
    this.#coreOf = core;
    this.#source = source;
  }

  /** Calls under way. */
  get calls(): number {
    return this.#calls;
  }

  /** Starts when there is something to do. */
  check(): void {
    if (this.#run !== null || !this.#source.wanted()) return;
    const { clock, leases, log } = this.#coreOf();
    const controls = leases.unleased().length;
    if (controls === 0) return;
    this.#run = { since: clock.now(), leased: 0, gaveUp: 0, stop: every(clock, TICK_MS, () => this.#tick()) };
    log.info({ event: 'orca_relay_cell_reregistration_started', controls });
    this.#tick();
  }

  stop(): void {
    this.#run?.stop();
    this.#run = null;
    for (const [session, { inFlight }] of this.#attempts) if (!inFlight) this.#attempts.delete(session);
  }

  #tick(): void {
    const { leases } = this.#coreOf();
    const unleased = leases.unleased();
    if (!this.#source.wanted()) this.#finish('back-in-reserve');
    else if (unleased.length === 0) this.#finish('all-leased');
    else this.#send(unleased);
  }

  #finish(outcome: 'all-leased' | 'back-in-reserve'): void {
    const { clock, log } = this.#coreOf();
    if (this.#run === null) return;
    const { since, leased, gaveUp } = this.#run;
    const tookMs = Math.round(clock.now() - since);
    log.info({ event: 'orca_relay_cell_reregistration_finished', outcome, leased, gaveUp, tookMs });
    this.stop();
  }

  #send(unleased: ControlSession[]): void {
    const now = this.#coreOf().clock.now();
    const due = unleased.filter((session) => {
      const attempt = this.#attempts.get(session);
      return attempt === undefined || (!attempt.inFlight && attempt.dueAt <= now);
    });
    for (let at = 0; at < due.length && this.#calls < this.#source.inFlight(); at += BATCH_ROWS) {
      void this.#register(due.slice(at, at + BATCH_ROWS));
    }
  }

  async #register(sessions: ControlSession[]): Promise<void> {
    const core = this.#coreOf();
    this.#calls += 1;
    for (const session of sessions) this.#attemptOf(session).inFlight = true;
    let answers: Map<string, ReregistrationOutcome> | null = null;
    try {
      const controls = sessions.map(leaseOf);
      const rows = await core.db.call('reregister_controls', { ...callerOf(core), controls });
      answers = new Map(
        rows.map((row) => [hostKey({ userId: row.user_id, relayHostId: row.relay_host_id }), row.outcome]),
      );
    } catch (error) {
      this.#saySilent(error);
    }
    this.#calls -= 1;
    for (const session of sessions) {
      this.#attemptOf(session).inFlight = false;
      this.#react(session, answers?.get(hostKey(session.host)) ?? 'unanswered');
      if (this.#run === null) this.#attempts.delete(session);
    }
  }

  #react(session: ControlSession, outcome: ReregistrationOutcome): void {
    const core = this.#coreOf();
    core.metrics.reregistrations.inc({ outcome });
    const reaction = REREGISTRATION_REACTIONS[outcome];
    if (reaction === 'stand-down') core.standDown();
    else if (core.seats.of(session.host) !== session) this.#left(session, outcome);
    else if (reaction === 'leased') this.#leased(session);
    else this.#failed(session, reaction, outcome);
  }

  /** It has left meanwhile: a lease that it got all the same is given up. A lost answer may have been a yes. */
  #left(session: ControlSession, outcome: ReregistrationOutcome): void {
    const { leases, seats } = this.#coreOf();
    this.#attempts.delete(session);
    if (outcome !== 'active' && outcome !== 'unanswered') return;
    leases.release(session.host, session, seats.closeReason(session.host) ?? null);
  }

  /** Kept though the cell may be in reserve mode again. */
  #leased(session: ControlSession): void {
    this.#attempts.delete(session);
    if (this.#run !== null) this.#run.leased += 1;
    this.#coreOf().leases.keep(session);
  }

  #failed(session: ControlSession, reaction: 'again' | 'unrecorded' | 'refused', outcome: string): void {
    const core = this.#coreOf();
    const attempt = this.#attemptOf(session);
    const refused = reaction === 'refused' || (reaction === 'unrecorded' && !this.#source.directorsSilent());
    attempt.dueAt = core.clock.now() + reregisterBackoffMs(attempt.failures);
    attempt.failures += 1;
    if (refused) attempt.refusals += 1;
    if (attempt.refusals < GIVE_UP_AFTER || !this.#source.wanted()) return;
    this.#attempts.delete(session);
    if (this.#run !== null) this.#run.gaveUp += 1;
    const host = hostDigest(session.host.userId, session.host.relayHostId);
    core.log.warn({ event: 'orca_relay_cell_reregistration_gave_up', host, reason: outcome });
    session.end('not-reregistered');
  }

  #attemptOf(session: ControlSession): Attempt {
    const known = this.#attempts.get(session);
    if (known !== undefined) return known;
    const attempt = { refusals: 0, failures: 0, dueAt: 0, inFlight: false };
    this.#attempts.set(session, attempt);
    return attempt;
  }

  #saySilent(error: unknown): void {
    const { clock, log } = this.#coreOf();
    if (clock.now() - this.#stalledSaidAt < STALLED_LOG_MS) return;
    this.#stalledSaidAt = clock.now();
    log.warn({ event: 'orca_relay_cell_reregistration_stalled', error });
  }
}

function leaseOf(session: ControlSession): LeaseRenewal {
  return {
    user_id: session.host.userId,
    relay_host_id: session.host.relayHostId,
    epoch: session.epoch,
    generation: session.generation,
    units: session.units,
    inclusion_watermark: session.watermark,
  };
}
