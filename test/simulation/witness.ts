import { LIMITS } from '../../contract/limits.ts';
import { type HostName, hostKey } from '../../server/cell/seats.ts';
import { type CellWitness, INTAKE_PER_SEC, type SimCell, type SimSession } from './sim-cell.ts';
import type { VirtualTime } from './virtual-time.ts';

/** Of one ask of a host. */
const MOST_BOOKINGS = 3;
/**
 * How long a seat that a newer one outranks may take phones: a lag of 10 s, a stall of 20 s and a database that is away for
 * 15 s may come one after the other, and a socket whose end nobody saw lives 75 s.
 */
const OUTRANKED_MS = 60_000;

/** Watches a run from outside and writes down what must not be (92). Each finding names its invariant. */
export class Witness implements CellWitness {
  readonly findings = new Set<string>();
  readonly counts = { booked: 0, seated: 0, fromDatabase: 0, tripped: 0 };
  readonly #time: VirtualTime;
  readonly #bookings = new Map<string, number[]>();
  readonly #seats = new Map<string, Set<SimSession>>();
  readonly #outrankedSince = new Map<SimSession, number>();
  /** Bookings since a host's ask began. */
  readonly #asks = new Map<string, number>();

  constructor(time: VirtualTime) {
    this.#time = time;
  }

  asks(host: HostName): void {
    this.#asks.set(hostKey(host), 0);
  }

  booked(cell: SimCell, host: HostName): void {
    this.counts.booked += 1;
    this.#intake(cell);
    const key = hostKey(host);
    const bookings = (this.#asks.get(key) ?? 0) + 1;
    this.#asks.set(key, bookings);
    if (bookings > MOST_BOOKINGS) this.findings.add(`bookings: more than ${MOST_BOOKINGS} for one ask`);
  }

  seated(session: SimSession): void {
    this.counts.seated += 1;
    const hosts = [...session.cell.sessions].length;
    if (hosts > session.cell.mostHosts)
      this.findings.add(`occupancy: more than ${session.cell.mostHosts} hosts on ${session.cell.id}`);
    const key = hostKey(session.host);
    const seats = this.#seats.get(key) ?? new Set();
    seats.add(session);
    this.#seats.set(key, seats);
    const newest = Math.max(...[...seats].map(({ epoch }) => epoch));
    for (const seat of seats) {
      const twin = [...seats].some((other) => other !== seat && other.epoch === seat.epoch);
      if ((seat.epoch < newest || twin) && !this.#outrankedSince.has(seat)) {
        this.#outrankedSince.set(seat, this.#time.now());
      }
    }
  }

  left(session: SimSession): void {
    const seats = this.#seats.get(hostKey(session.host));
    seats?.delete(session);
    this.#outrankedSince.delete(session);
    if (seats?.size === 1) for (const last of seats) this.#outrankedSince.delete(last);
  }

  /** The database gave an epoch to a host whose director knew this floor; `minted`: one that it had not before. */
  granted(epoch: number, floor: number, minted: boolean): void {
    this.counts.fromDatabase += 1;
    if (epoch < floor || (minted && epoch === floor)) {
      this.findings.add(`floor: the database gave epoch ${epoch}, the floor was ${floor}`);
    }
  }

  /** 20 s after a cell has tripped. @param rejected why the database places nobody there */
  tripped(cell: SimCell, rejected: string | null): void {
    this.counts.tripped += 1;
    if (rejected === 'reserve') this.findings.add(`tripped: the database still places nobody on ${cell.id}`);
  }

  /** Once a second. */
  look(): void {
    for (const [session, since] of this.#outrankedSince) {
      if (session.demoted || this.#time.now() - since <= OUTRANKED_MS) continue;
      this.findings.add(`outranked: a seat at epoch ${session.epoch} on ${session.cell.id} still takes phones`);
    }
  }

  /** Burst + rate × time, over every stretch of time. */
  #intake(cell: SimCell): void {
    const key = `${cell.id} ${cell.incarnation}`;
    const times = this.#bookings.get(key) ?? [];
    times.push(this.#time.now());
    this.#bookings.set(key, times);
    for (let first = times.length - 1; first >= 0; first--) {
      const seconds = (this.#time.now() - (times[first] as number)) / 1_000;
      if (times.length - first > LIMITS.intakeBurst + INTAKE_PER_SEC * seconds + 1) {
        this.findings.add(`intake: ${times.length - first} bookings in ${seconds.toFixed(1)} s on ${cell.id}`);
      }
    }
  }
}
