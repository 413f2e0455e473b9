import type { Clock } from '../clock.ts';
import type { ReservePlacement } from '../config.ts';
import type { Logger } from '../log.ts';
import { hostDigest } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { BookingClient } from './booking-client.ts';
import type { BookingEstimates } from './booking-estimates.ts';
import { candidateOf, isReserve, planCells } from './candidates.ts';
import type { DeadCellVerdicts } from './dead-cell-verdicts.ts';
import { FreshBooking, type FreshBookingParts, MAX_BOOKINGS } from './fresh-booking.ts';
import type { HostFacts, Rejoin } from './host-facts.ts';
import type { KnownSeat } from './known-rows.ts';
import type { Seat } from './outcomes.ts';
import type { Refusal } from './refusals.ts';
import { nextStep, type RowRead, type Situation, type Step } from './reserve-plan.ts';
import type { HostName, SeatView } from './seat-view.ts';
import type { Supersede } from './supersede.ts';

/** Carries out the reserve plan for a host that asks: from memory, by a booking, or by leaving it to Postgres. */

/** The row of a host, as Postgres has it now; `failed` when it could not be had in time. */
export type ReadRow = (
  host: HostName,
  timeoutMs: number,
  signal: AbortSignal,
) => Promise<{ row: KnownSeat | null } | 'failed' | { refusal: Refusal }>;

export interface ReserveAsk {
  host: HostName;
  region: string | null;
  signal: AbortSignal;
}

export type ReserveRule = 'reserve-memory' | 'reserve-rebooked' | 'reserve-booked';

export interface ReserveAnswer {
  kind: 'answer';
  rule: ReserveRule;
  seat: Seat;
  /** Where the host was before. */
  fromCellId: string | null;
}

export type Planned =
  | ReserveAnswer
  | { kind: 'refuse'; refusal: Refusal }
  /** @param bookFirst whether a cell is to be booked before Postgres places the host */
  | { kind: 'database'; bookFirst: boolean };

const DATABASE: Planned = { kind: 'database', bookFirst: false };

export interface ReserveAssignParts extends FreshBookingParts {
  client: BookingClient;
  clock: Clock;
  estimates: BookingEstimates;
  log: Logger;
  metrics: Metrics;
  mode: ReservePlacement;
  poolWaiters: () => number;
  readRow: ReadRow;
  seats: SeatView;
  supersede: Supersede;
  verdicts: Pick<DeadCellVerdicts, 'disruption'>;
}

export class ReserveAssign {
  readonly #parts: ReserveAssignParts;
  readonly #fresh: FreshBooking;
  readonly #startedAt: number;
  readonly #steps;

  constructor(parts: ReserveAssignParts) {
    this.#parts = parts;
    this.#fresh = new FreshBooking(parts);
    this.#startedAt = parts.clock.now();
    this.#steps = parts.metrics.counter('orca_relay_reserve_plan_total', 'What the reserve plan came to', ['step']);
  }

  async plan(ask: ReserveAsk): Promise<Planned> {
    if (this.#parts.mode === 'dry-run') this.#rehearse(ask);
    let rowRead: RowRead = 'not-yet';
    for (;;) {
      const facts = this.#parts.memory.facts(ask.host);
      const step = nextStep(this.#situation(facts, rowRead));
      this.#steps.inc({ step: step.do });
      if (step.do !== 'read-row') return this.#take(step, ask, facts);
      const read = await this.#parts.readRow(ask.host, step.timeoutMs, ask.signal);
      // without a place in the lane nothing can be read; a host of which something is known is not kept waiting for it
      if (typeof read === 'object' && 'refusal' in read && !facts.known) {
        return { kind: 'refuse', refusal: read.refusal };
      }
      rowRead = typeof read === 'object' && 'row' in read ? 'done' : 'failed';
      if (typeof read === 'object' && 'row' in read && read.row !== null) this.#parts.memory.rowIs(ask.host, read.row);
    }
  }

  /** For a host that Postgres would place: a booking instead, or null. */
  async bookInstead(ask: ReserveAsk): Promise<ReserveAnswer | null> {
    const planned = await this.#book(ask, this.#parts.memory.facts(ask.host), MAX_BOOKINGS);
    return planned.kind === 'answer' ? planned : null;
  }

  #take(step: Exclude<Step, { do: 'read-row' }>, ask: ReserveAsk, facts: HostFacts): Planned | Promise<Planned> {
    switch (step.do) {
      case 'database':
        return DATABASE;
      case 'ask-then-book':
        return { kind: 'database', bookFirst: true };
      case 'retry':
        return { kind: 'refuse', refusal: { reason: `reserve-${step.reason}`, retryAfterMs: step.seconds * 1_000 } };
      case 'remember':
        return this.#remember(facts);
      case 'rebook':
        return this.#rebook(ask, facts);
      case 'book':
        return this.#book(ask, facts, MAX_BOOKINGS);
    }
  }

  #situation(facts: HostFacts, rowRead: RowRead): Situation {
    const { clock, estimates, fleet, mode, poolWaiters, seats, verdicts } = this.#parts;
    const cells = planCells(fleet.cells, seats);
    const byId = (cellId: string | null) => cells.find(({ row }) => row.cell_id === cellId);
    const last = byId(facts.lastCellId);
    const homeCell = byId(facts.rejoin?.cellId ?? null);
    const home = homeCell ? candidateOf(homeCell, estimates) : null;
    return {
      mode,
      reserveCells: cells.some(isReserve),
      facts,
      rowRead,
      poolWaiters: poolWaiters(),
      complete: seats.complete(),
      sinceStartMs: clock.now() - this.#startedAt,
      last:
        facts.lastCellId === null
          ? null
          : {
              status: last?.view?.status ?? null,
              reserve: last !== undefined && isReserve(last),
              disrupted: verdicts.disruption(facts.lastCellId) !== null,
            },
      home: home === null ? null : { incarnation: home.incarnation, hasRoom: home.free > 0 },
    };
  }

  #remember({ rejoin }: HostFacts): Planned {
    const seat = this.#seatOf(rejoin as Rejoin);
    return seat === null ? DATABASE : { kind: 'answer', rule: 'reserve-memory', seat, fromCellId: null };
  }

  async #rebook(ask: ReserveAsk, facts: HostFacts): Promise<Planned> {
    const { client, memory } = this.#parts;
    const { cellId, epoch } = facts.rejoin as Rejoin;
    const seat = this.#seatOf({ cellId, epoch });
    if (seat === null) return this.#book(ask, facts, MAX_BOOKINGS);
    const address = { cellId, url: seat.cellUrl };
    const booked = await client.book(address, { host: ask.host, epoch, sticky: true });
    if (booked.outcome === 'ok') return { kind: 'answer', rule: 'reserve-rebooked', seat, fromCellId: null };
    if (booked.outcome === 'seated-newer') memory.heard(ask.host, booked.epoch);
    return this.#book(ask, memory.facts(ask.host), MAX_BOOKINGS - 1);
  }

  async #book(ask: ReserveAsk, facts: HostFacts, bookings: number): Promise<Planned> {
    const region = ask.region ?? this.#regionOf(facts.lastCellId);
    const { leftCellId: avoid } = facts;
    const floor = this.#parts.memory.mintFloor(facts);
    const found = await this.#fresh.find({ host: ask.host, region, floor, avoid, bookings });
    if (found.kind === 'database') return DATABASE;
    if (found.kind === 'paced') {
      const cause = 'reserve_cells_paced';
      return { kind: 'refuse', refusal: { reason: 'reserve-paced', retryAfterMs: found.retryAfterMs, cause } };
    }
    this.#parts.supersede.below(ask.host, found.seat);
    return { kind: 'answer', rule: 'reserve-booked', seat: found.seat, fromCellId: facts.lastCellId };
  }

  /** Never waited for, and never heard by whoever asks. */
  #rehearse({ host, region }: ReserveAsk): void {
    const { log, memory } = this.#parts;
    const facts = memory.facts(host);
    void this.#fresh
      .rehearse(host, region ?? this.#regionOf(facts.lastCellId), memory.mintFloor(facts))
      .then((booked) => {
        const digest = hostDigest(host.userId, host.relayHostId);
        if (booked !== null)
          log.debug({ event: 'orca_relay_reserve_rehearsed', host: digest, outcome: booked.outcome });
      });
  }

  #seatOf({ cellId, epoch }: KnownSeat): Seat | null {
    const row = this.#parts.fleet.cells.find(({ cell_id }) => cell_id === cellId);
    return row === undefined ? null : { cellId, cellUrl: row.url, epoch };
  }

  #regionOf(cellId: string | null): string | null {
    return this.#parts.fleet.cells.find(({ cell_id }) => cell_id === cellId)?.region ?? null;
  }
}
