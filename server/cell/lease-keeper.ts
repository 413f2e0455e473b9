import { type HostCloseReason, LIMITS } from '../../contract/index.ts';
import type { Timer } from '../clock.ts';
import type { ActivateControlResult, RenewedLease } from '../sql-interface.ts';
import { type CellCore, callerOf } from './cell-core.ts';
import type { ControlSession } from './control-session.ts';
import { REACQUIRE_REACTIONS, RENEWAL_REACTIONS, type RenewalOutcome } from './renewal-reactions.ts';
import { type HostName, hostKey } from './seats.ts';

/** A flush slower than this is logged, clean or not. */
const SLOW_FLUSH_MS = 250;

/** Ticks come a little early or late: one that is this close to being due is due. */
const TICK_SLACK_MS = 1_000;

interface Upkeep {
  dueAt: number;
  /** The tick that asked for the renewal under way: the next one counts from there, not from the answer. */
  askedAt: number;
  inFlight: boolean;
}

export interface ControlClaim {
  epoch: number;
  generation: number;
  watermark: number;
}

/**
 * The durable form of every seat here, `relay.lease`: taken once the host has proved itself, renewed in batches, given up
 * at the end. What Postgres says about a lease may end a control (`renewal-reactions.ts`); that Postgres is silent may not.
 */
export class LeaseKeeper {
  readonly #coreOf: () => CellCore;
  readonly #upkeep = new Map<ControlSession, Upkeep>();
  readonly #queue = new Set<ControlSession>();
  #flushTimer: Timer | undefined;
  #stopped = false;

  /** The core holds its keeper, so the keeper asks for the core. */
  constructor(core: () => CellCore) {
    this.#coreOf = core;
  }

  get #core(): CellCore {
    return this.#coreOf();
  }

  /** @throws DatabaseError */
  async activate(host: HostName, claim: ControlClaim): Promise<ActivateControlResult['outcome']> {
    const { outcome } = await this.#core.db.call('activate_control', {
      ...callerOf(this.#core),
      user_id: host.userId,
      relay_host_id: host.relayHostId,
      epoch: claim.epoch,
      generation: claim.generation,
      inclusion_watermark: claim.watermark,
    });
    return outcome;
  }

  /** From now on the session's lease is kept alive. */
  keep(session: ControlSession): void {
    const now = this.#core.clock.now();
    this.#upkeep.set(session, { dueAt: now + LIMITS.firstRenewalMs, askedAt: now, inFlight: false });
  }

  /** Whether it has a lease, as far as is known here. */
  holds(session: ControlSession): boolean {
    return this.#upkeep.has(session);
  }

  /** Hosts that were seated from memory alone, on a cell in reserve mode. */
  unleased(): ControlSession[] {
    return this.#core.seats.sessions().filter((session) => !this.holds(session));
  }

  forget(session: ControlSession): void {
    this.#upkeep.delete(session);
    this.#queue.delete(session);
  }

  /** Called at every tick of the session. */
  renewIfDue(session: ControlSession): void {
    const upkeep = this.#upkeep.get(session);
    if (upkeep === undefined || upkeep.inFlight) return;
    if (upkeep.dueAt - TICK_SLACK_MS <= this.#core.clock.now()) this.#enqueue(session, upkeep);
  }

  /** All of them, now: what this cell knows of its hosts may be out of date. */
  renewAll(): void {
    for (const [session, upkeep] of this.#upkeep) if (!upkeep.inFlight) this.#enqueue(session, upkeep);
    this.#flush();
  }

  /** Gives a lease up; best effort, since it ends by itself. */
  release(host: HostName, held: { epoch: number; generation: number }, lastWord: HostCloseReason | null): void {
    const taken = this.#core.background.run(async () => {
      try {
        await this.#core.db.call('release_lease', {
          ...callerOf(this.#core),
          user_id: host.userId,
          relay_host_id: host.relayHostId,
          epoch: held.epoch,
          generation: held.generation,
          close_reason: lastWord,
        });
        this.#core.metrics.leaseReleases.inc({ outcome: 'done' });
      } catch (error) {
        this.#core.metrics.leaseReleases.inc({ outcome: 'failed' });
        this.#core.log.debug({ event: 'orca_relay_lease_release_failed', error });
      }
    });
    if (!taken) this.#core.metrics.leaseReleases.inc({ outcome: 'dropped' });
  }

  stop(): void {
    this.#stopped = true;
    this.#core.clock.clearTimeout(this.#flushTimer);
    this.#queue.clear();
  }

  #enqueue(session: ControlSession, upkeep: Upkeep): void {
    if (this.#stopped || this.#queue.has(session)) return;
    upkeep.askedAt = this.#core.clock.now();
    this.#queue.add(session);
    if (this.#queue.size >= LIMITS.renewalBatchRows) this.#flush();
    else if (this.#queue.size === 1) {
      this.#flushTimer = this.#core.clock.setTimeout(() => this.#flush(), LIMITS.renewalFlushMs);
    }
  }

  #flush(): void {
    this.#core.clock.clearTimeout(this.#flushTimer);
    const sessions = [...this.#queue];
    this.#queue.clear();
    for (let at = 0; at < sessions.length; at += LIMITS.renewalBatchRows) {
      this.#renew(sessions.slice(at, at + LIMITS.renewalBatchRows)).catch((error) => {
        this.#core.log.error({ event: 'orca_relay_control_renewal_broken', error });
      });
    }
  }

  async #renew(sessions: ControlSession[]): Promise<void> {
    const started = this.#core.clock.now();
    for (const session of sessions) this.#setInFlight(session, true);
    const asked = sessions.map((session) => ({
      session,
      generation: session.generation,
      watermark: session.watermark,
    }));
    let answers: Map<string, RenewedLease> | null = null;
    try {
      const rows = await this.#core.db.call('renew_leases', {
        ...callerOf(this.#core),
        leases: asked.map(({ session, generation, watermark }) => ({
          user_id: session.host.userId,
          relay_host_id: session.host.relayHostId,
          epoch: session.epoch,
          generation,
          units: session.units,
          inclusion_watermark: watermark,
        })),
      });
      answers = new Map(rows.map((row) => [hostKey({ userId: row.user_id, relayHostId: row.relay_host_id }), row]));
    } catch (error) {
      this.#core.log.debug({ event: 'orca_relay_control_renewal_failed', error });
    }
    const outcomes: Partial<Record<RenewalOutcome, number>> = {};
    for (const { session } of asked) {
      const row = answers?.get(hostKey(session.host));
      const outcome: RenewalOutcome = answers === null ? 'database_error' : (row?.outcome ?? 'missing');
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      this.#setInFlight(session, false);
      // The seat may have changed hands while the answer was on its way.
      if (session.state !== 'closed' && this.#upkeep.has(session)) this.#react(session, outcome, row);
    }
    this.#reportFlush(sessions.length, this.#core.clock.now() - started, outcomes);
  }

  #setInFlight(session: ControlSession, inFlight: boolean): void {
    const upkeep = this.#upkeep.get(session);
    if (upkeep !== undefined) upkeep.inFlight = inFlight;
  }

  #react(session: ControlSession, outcome: RenewalOutcome, row: RenewedLease | undefined): void {
    const reaction = RENEWAL_REACTIONS[outcome];
    if (reaction.do === 'carry-on') this.#renewed(session);
    else if (reaction.do === 'retire') {
      this.#renewed(session);
      // The one place where the database's time meets this machine's; the change log has usually said it before.
      const left = (row?.retire_until ?? 0) - this.#core.clock.wallNow();
      session.drain(Math.min(left, LIMITS.maxGraceMs), 'retired');
    } else if (reaction.do === 'reacquire') this.#reacquire(session);
    else if (reaction.do === 'stand-down') this.#core.standDown();
  }

  #renewed(session: ControlSession): void {
    const upkeep = this.#upkeep.get(session);
    if (upkeep !== undefined) upkeep.dueAt = upkeep.askedAt + LIMITS.renewalIntervalMs;
  }

  #reacquire(session: ControlSession): void {
    this.#setInFlight(session, true);
    const taken = this.#core.background.run(async () => {
      try {
        await this.#tryAgain(session);
      } finally {
        this.#setInFlight(session, false);
      }
    });
    if (!taken) this.#setInFlight(session, false);
  }

  /**
   * In the host's turn, so that it cannot take the lease back from a newer generation. Whoever has the turn is about to take
   * the lease: to wait for that would hold up what else is done in the background, and the next tick asks again.
   */
  async #tryAgain(session: ControlSession): Promise<void> {
    const key = hostKey(session.host);
    if (this.#core.activations.isTaken(key)) return;
    const turn = await this.#core.activations.turn(key);
    if (!turn.granted) return;
    let outcome: ActivateControlResult['outcome'] | 'database_error';
    try {
      if (session.state === 'closed' || session.drained) return;
      outcome = await this.activate(session.host, session);
    } catch (error) {
      outcome = 'database_error';
      this.#core.log.warn({ event: 'orca_relay_control_recovery_failed', error });
    } finally {
      turn.release();
    }
    this.#core.metrics.leaseRecoveries.inc({ outcome });
    if (session.state === 'closed') {
      // Its own release may have come before this took the lease again; a lost answer may have been a yes.
      if (outcome === 'active' || outcome === 'database_error') {
        this.release(session.host, session, this.#core.seats.closeReason(session.host) ?? null);
      }
      return;
    }
    const reaction = REACQUIRE_REACTIONS[outcome];
    if (reaction.do === 'recovered') this.#renewed(session);
    else if (reaction.do === 'end') session.end(reaction.cause);
    else if (reaction.do === 'stand-down') this.#core.standDown();
  }

  #reportFlush(rows: number, durationMs: number, outcomes: Partial<Record<RenewalOutcome, number>>): void {
    const { metrics, log } = this.#core;
    for (const [outcome, count] of Object.entries(outcomes)) metrics.renewals.inc({ outcome }, count);
    metrics.renewalFlushSeconds.observe(durationMs / 1_000);
    if (durationMs <= SLOW_FLUSH_MS && outcomes.renewed === rows) return;
    log.info({ event: 'orca_relay_control_renewal_flush', rows, durationMs: Math.round(durationMs), outcomes });
  }
}
