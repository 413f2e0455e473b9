import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import { DatabaseError } from '../database.ts';
import type { Metrics } from '../metrics.ts';
import type { RoleContext } from '../role-part.ts';
import type { AssignResult, ParamsOf } from '../sql-interface.ts';
import { HostPacing } from './host-pacing.ts';
import { Lane, type LaneName, Permits } from './lanes.ts';
import { seatOf } from './outcomes.ts';
import { placementEvent } from './placement-events.ts';
import type { Hints, PlacementMemory } from './placement-memory.ts';
import { evidenceFor } from './poll-evidence.ts';
import type { Verdict } from './reachability.ts';
import type { Refusal } from './refusals.ts';

/** Where every call for a place passes: the lanes, the pacing of hosts, and the one SQL call behind them. */

/** A commit whose reply comes later than this is found by the next ask, as any lost reply is (P1). */
const CALL_TIMEOUT_MS = 3_000;
/** A phone waits for its slot this long; the slot is one of the placement permits. */
const RESOLVE_WAIT_MS = 5_000;
const ROW_BUSY_RETRY_MS = 1_000;

export type Answered<T> = { ok: true; value: T } | { ok: false; refusal: Refusal };

export interface Desk {
  readonly lanes: Record<LaneName, Lane>;
  readonly pacing: HostPacing;
  /** Runs `work` in a lane; a database that does not answer is a refusal of that lane. */
  inLane<T>(lane: LaneName, host: string | null, signal: AbortSignal, work: () => Promise<T>): Promise<Answered<T>>;
  /**
   * With what this director knows of the host beyond its row (03, epoch minted); what is granted is remembered. A host that is
   * to be placed, and whose dead home only the director's polls may judge, is asked for once more with what they say (03,
   * dead); nobody else is.
   */
  assign(params: AssignParams): Promise<AssignResult>;
  /** Whether an answer to a host waits for the verdict of this director's polls, and they give it: its home is dead. */
  judgesDead(result: AssignResult): boolean;
  /** What a `busy` row means to a caller in this lane. */
  rowBusyRetryMs(lane: LaneName): number;
  stop(): void;
}

export type AssignParams = Omit<ParamsOf<'assign'>, keyof Hints | 'poll_evidence'>;

export interface DeskParts {
  memory: PlacementMemory;
  /** What this director's polls say of a silent cell. */
  judge: (cellId: string) => Verdict;
}

export function openDesk({ clock, config, db, log, metrics }: RoleContext, { memory, judge }: DeskParts): Desk {
  const { placement, sticky } = config.lanes;
  const shared = new Permits(placement.concurrency);
  // Joined first, so served first when a placement permit comes free.
  const resolve = {
    concurrency: 1,
    queueMax: placement.queueMax,
    waitMs: RESOLVE_WAIT_MS,
    minRetryMs: placement.retryAfterSeconds * 1_000,
  };
  const lanes: Record<LaneName, Lane> = {
    resolve: new Lane({ name: 'resolve', ...resolve }, shared, clock),
    placement: new Lane({ name: 'placement', ...laneOptions(placement) }, shared, clock),
    sticky: new Lane({ name: 'sticky', ...laneOptions(sticky) }, new Permits(sticky.concurrency), clock),
  };
  const meters = measure(metrics, lanes);

  async function call(params: Omit<ParamsOf<'assign'>, keyof Hints>): Promise<AssignResult> {
    const host = { userId: params.user_id, relayHostId: params.relay_host_id };
    const hints = memory.hints(host);
    const result = await db.call('assign', { ...params, ...hints }, { timeoutMs: CALL_TIMEOUT_MS }).catch((error) => {
      if (params.place !== false && mayHaveCommitted(error)) memory.perhapsGranted(host, hints);
      throw error;
    });
    meters.assigned(result);
    if (result.outcome === 'granted') memory.granted(host, seatOf(result));
    const event = placementEvent(params, result);
    if (event !== null) log.info(event);
    return result;
  }

  return {
    lanes,
    pacing: new HostPacing(clock),
    async inLane(name, host, signal, work) {
      const lane = lanes[name];
      const askedAt = clock.now();
      const entry = await lane.enter(host, signal);
      meters.waited(name, clock.now() - askedAt);
      if (!entry.ok) {
        return { ok: false, refusal: { reason: entry.reason, lane: name, retryAfterMs: entry.retryAfterMs } };
      }
      let served = false;
      try {
        const value = await work();
        served = true;
        return { ok: true, value };
      } catch (error) {
        if (!(error instanceof DatabaseError)) throw error;
        // Ours to mend, and nothing a client could do but come again: it hears when.
        if (!error.retryable) log.error({ event: 'orca_relay_handler_failed', where: `${name} lane`, error });
        const retryAfterMs = lane.promise();
        return { ok: false, refusal: { reason: 'database', lane: name, retryAfterMs, cause: error.kind } };
      } finally {
        entry.leave(served);
        meters.lanes();
      }
    },
    async assign(params) {
      const result = await call(params);
      if (params.requested_by !== 'host' || params.place !== true) return result;
      const evidence = evidenceFor(result, judge);
      return evidence === null ? result : call({ ...params, poll_evidence: evidence });
    },
    judgesDead: (result) => evidenceFor(result, judge) !== null,
    rowBusyRetryMs: (lane) => lanes[lane].promise(ROW_BUSY_RETRY_MS),
    stop() {
      for (const lane of Object.values(lanes)) lane.stop();
    },
  };
}

function mayHaveCommitted(error: unknown): boolean {
  return error instanceof DatabaseError && (error.kind === 'unavailable' || error.kind === 'timeout');
}

function laneOptions(lane: { concurrency: number; queueMax: number; waitMs: number; retryAfterSeconds: number }) {
  const { concurrency, queueMax, waitMs, retryAfterSeconds } = lane;
  return { concurrency, queueMax, waitMs, minRetryMs: retryAfterSeconds * 1_000 };
}

/** When a phone is told its host's seat is good until, if the host holds no lease there yet. */
export function unleasedUntil(clock: Clock): number {
  return clock.wallNow() + LIMITS.grantLeaseMs;
}

function measure(metrics: Metrics, lanes: Record<LaneName, Lane>) {
  const assigned = metrics.counter('orca_relay_assign_total', 'Answers of assign', ['outcome', 'rule']);
  const waited = metrics.histogram('orca_relay_lane_wait_seconds', 'Time spent in front of a lane', ['lane']);
  const waiting = metrics.gauge('orca_relay_lane_waiting', 'Asks that wait for a lane', ['lane']);
  const running = metrics.gauge('orca_relay_lane_running', 'Asks in a lane', ['lane']);
  const bound = metrics.gauge('orca_relay_lane_queue_bound', 'Asks that may wait at the measured rate', ['lane']);
  return {
    assigned: (result: AssignResult) => assigned.inc({ outcome: result.outcome, rule: result.rule }),
    waited: (lane: LaneName, ms: number) => waited.observe({ lane }, ms / 1_000),
    lanes: () => {
      for (const lane of Object.values(lanes)) {
        waiting.set({ lane: lane.name }, lane.waiting);
        running.set({ lane: lane.name }, lane.running);
        bound.set({ lane: lane.name }, lane.queueBound);
      }
    },
  };
}
