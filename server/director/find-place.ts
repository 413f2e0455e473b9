import type { AssignResult } from '../sql-interface.ts';
import type { Desk } from './desk.ts';
import type { LaneName } from './lanes.ts';
import { hostKey, refusalOf, type Seat, seatOf } from './outcomes.ts';
import type { Refusal } from './refusals.ts';
import type { ReserveAnswer, ReserveAsk, ReserveAssign } from './reserve-assign.ts';

/** Which cell serves a host that asks: the reserve plan first, then the lanes and the database behind them (04, assign). */

/** A place, and how it came about. */
export interface Grant {
  seat: Seat;
  lane: LaneName;
  rule: string;
  /** Undefined for a host that stays. */
  from?: string | null;
}

export type Decision = { refusal: Refusal } | { granted: Grant };

/** The plan, then the sticky lane; who needs a place there is booked one, or goes on to the placement lane. */
export async function findPlace(desk: Desk, reserve: ReserveAssign, ask: ReserveAsk): Promise<Decision> {
  const planned = await reserve.plan(ask);
  if (planned.kind === 'refuse') return { refusal: planned.refusal };
  if (planned.kind === 'answer') return { granted: reserved(planned) };
  const kept = await askIn(desk, 'sticky', ask, { requested_by: 'host', place: false });
  if ('refusal' in kept || !needsPlace(desk, kept.result)) return settle(desk, kept);
  const booked = planned.bookFirst ? await reserve.bookInstead(ask) : null;
  if (booked !== null) return { granted: reserved(booked) };
  return settle(desk, await askIn(desk, 'placement', ask, { requested_by: 'host', place: true }));
}

/** For a region report, which never moves a host: what the row says, read without granting a lease (wire 1.10). */
export async function currentPlace(desk: Desk, ask: Omit<ReserveAsk, 'region'>): Promise<Decision> {
  const read = await askIn(desk, 'sticky', { ...ask, region: null }, { requested_by: 'resolve', place: false });
  if (!('refusal' in read) && read.result.outcome === 'would_place') return { refusal: { reason: 'no-assignment' } };
  return settle(desk, read);
}

/** A host whose home this director judges dead is to be placed as well: the call that places has Postgres judge the rest. */
function needsPlace(desk: Desk, result: AssignResult): boolean {
  return result.outcome === 'would_place' || desk.judgesDead(result);
}

type Asked = { refusal: Refusal } | { result: AssignResult; lane: LaneName };

async function askIn(
  desk: Desk,
  lane: LaneName,
  { host: { userId, relayHostId }, region, signal }: ReserveAsk,
  how: { requested_by: 'host' | 'resolve'; place: boolean },
): Promise<Asked> {
  const answered = await desk.inLane(lane, hostKey(userId, relayHostId), signal, () =>
    desk.assign({ user_id: userId, relay_host_id: relayHostId, preferred_region: region, ...how }),
  );
  return answered.ok ? { result: answered.value, lane } : answered;
}

function settle(desk: Desk, asked: Asked): Decision {
  if ('refusal' in asked) return asked;
  const { result, lane } = asked;
  if (result.outcome !== 'granted') return { refusal: refusalOf(desk, result, lane) };
  const { rule, moved, from_cell_id: from } = result;
  return { granted: { seat: seatOf(result), lane, rule, ...(moved ? { from } : {}) } };
}

/** A place that was booked paces its host as one that Postgres gave; one out of memory as one that was kept. */
function reserved({ seat, rule, fromCellId }: ReserveAnswer): Grant {
  const booked = rule === 'reserve-booked';
  return { seat, rule, lane: booked ? 'placement' : 'sticky', ...(booked ? { from: fromCellId } : {}) };
}
