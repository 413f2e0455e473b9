import { DEMOTE_OUTCOMES, type DemoteOutcome, type DemoteRequest, demoteReply } from '../../contract/booking.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import { hostDigest, type Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { CellRow } from '../sql-interface.ts';
import { callCell } from './cell-call.ts';
import type { CellPost } from './cell-post.ts';
import type { HostName, SeatEntry } from './seat-view.ts';

/** Tells a cell that a seat is outranked. It names that seat and no other, so an order that comes late harms nobody. */

const PATH = '/internal/demote';
/** Unanswered at once: one more is dropped, and found again by the ledger. */
const MAX_UNANSWERED = 1_000;

export type DemotionCause = 'superseded' | 'behind-row';
/** `unreachable`: no answer. `unknown`: one that this reader does not know. `dropped`: not sent. */
export type Demotion = DemoteOutcome | 'unreachable' | 'unknown' | 'dropped';

/** Its host may sit there still. */
export function isUnsettled(outcome: Demotion): boolean {
  return outcome === 'unreachable' || outcome === 'unknown' || outcome === 'dropped';
}

export interface DemotionsParts {
  fleet: { readonly cells: readonly CellRow[] };
  log: Logger;
  metrics: Metrics;
  /** What cells are held to. */
  peerTime: Clock;
  post: CellPost;
}

export class Demotions {
  readonly #parts: DemotionsParts;
  readonly #outcomes;
  #unanswered = 0;

  constructor(parts: DemotionsParts) {
    this.#parts = parts;
    this.#outcomes = parts.metrics.counter('orca_relay_reserve_demotions_total', 'Seats told that they are outranked', [
      'cause',
      'outcome',
    ]);
  }

  /** Never rejects. @param by what outranks it, for the log */
  async demote(
    host: HostName,
    seat: SeatEntry,
    cause: DemotionCause,
    by: { cellId: string; epoch: number },
  ): Promise<Demotion> {
    const outcome = await this.#send(host, seat);
    this.#outcomes.inc({ cause, outcome });
    this.#parts.log.info({
      event: 'orca_relay_reserve_supersede',
      host: hostDigest(host.userId, host.relayHostId),
      cause,
      outcome,
      fromCellId: seat.cellId,
      fromEpoch: seat.epoch,
      toCellId: by.cellId,
      toEpoch: by.epoch,
    });
    return outcome;
  }

  async #send({ userId, relayHostId }: HostName, { cellId, epoch, joinedAt }: SeatEntry): Promise<Demotion> {
    const url = this.#parts.fleet.cells.find(({ cell_id }) => cell_id === cellId)?.url;
    // a cell that is no more seats nobody
    if (url === undefined) return 'not-seated';
    if (this.#unanswered >= MAX_UNANSWERED) return 'dropped';
    const request: DemoteRequest = { v: 1, userId, relayHostId, epoch, joinedAt };
    this.#unanswered += 1;
    const call = { path: PATH, json: JSON.stringify(request), timeoutMs: LIMITS.bookingTimeoutMs };
    const reply = demoteReply.safeParse(await callCell(this.#parts, { cellId, url }, call));
    this.#unanswered -= 1;
    if (!reply.success) return 'unreachable';
    return DEMOTE_OUTCOMES.find((known) => known === reply.data.outcome) ?? 'unknown';
  }
}
