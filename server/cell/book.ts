import type { BookingItem, BookingResult, ReserveRequest } from '../../contract/booking.ts';
import type { Clock, Timer } from '../clock.ts';
import type { AdmitMode } from '../sql-interface.ts';
import { decideBooking } from './booking-rules.ts';
import { Intake } from './intake.ts';
import { type HostName, hostKey } from './seats.ts';
import type { BookedUnit, Unit, Units } from './units.ts';

/** Units of hosts that never come are given back within this time, also while nobody asks. */
const SWEEP_MS = 1_000;

/** How a booking came to its end; `used`: its host took its seat. */
export type BookingEnd = 'used' | 'replaced' | 'expired' | 'void';

/** A seat that is kept for a host, at one epoch. */
export interface Booking {
  readonly host: HostName;
  readonly epoch: number;
  readonly reservedBy: string;
}

interface Entry extends Booking {
  readonly unit: BookedUnit;
  /** On the clock. */
  expiresAt: number;
  ended: BookingEnd | null;
}

/** What the book looks at, and whom it tells. */
export interface BookContext {
  clock: Clock;
  units: Pick<Units, 'booking' | 'hasRoom'>;
  /** Units up to which seats are promised. */
  ceiling: number;
  mode(): AdmitMode;
  draining(): boolean;
  intakePerSec(): number;
  /** Of a host's seat here; 0 without one, and for one that was demoted. */
  seatedEpoch(host: HostName): number;
  /** Below which its seats are things of the past; 0 if none is known to be. */
  leftEpoch(host: HostName): number;
  booked(booking: Booking): void;
  ended(end: BookingEnd): void;
}

/**
 * The seats that directors booked on a reserve cell (`booking-rules.ts` decides). A booking keeps one unit until its host's
 * socket has it, is good for one admission at exactly its epoch, and ends by itself. At most one for a host: the newest.
 * So there are no more of them than units, and hosts that came with one in the last 30 s.
 */
export class Book {
  readonly intake: Intake;
  readonly #context: BookContext;
  readonly #entries = new Map<string, Entry>();
  #timer: Timer | undefined;

  constructor(context: BookContext) {
    this.#context = context;
    this.intake = new Intake(context.clock, () => context.intakePerSec());
  }

  get ceiling(): number {
    return this.#context.ceiling;
  }

  get size(): number {
    this.#sweep();
    return this.#entries.size;
  }

  /** An answer for each item, in order, each judged with those before it counted. */
  take(request: ReserveRequest): BookingResult[] {
    this.#sweep();
    return request.items.map((item) => this.#answer(item, request));
  }

  /** The booking that lets this host in at this epoch. */
  find(host: HostName, epoch: number): Booking | undefined {
    const entry = this.#current(host);
    return entry?.epoch === epoch ? entry : undefined;
  }

  /** Of the host's booking; 0 without one. */
  epochOf(host: HostName): number {
    return this.#current(host)?.epoch ?? 0;
  }

  /** The unit that is kept for a host, for the socket it has come with; null if it has none, or one that is on its way. */
  lendUnit(host: HostName): Unit | null {
    return this.#current(host)?.unit.lend() ?? null;
  }

  /**
   * Whether a booking that was found is still good: it may have expired while its host proved itself, but not have been used,
   * replaced or voided.
   */
  honours(booking: Booking): boolean {
    const { ended } = booking as Entry;
    return ended === null || ended === 'expired';
  }

  /** The host has taken its seat, by this booking or without: what it was booked for up to this epoch is spent. */
  seated(host: HostName, epoch: number, by: Booking | null): void {
    if (by !== null) (by as Entry).ended = 'used';
    const entry = this.#entries.get(hostKey(host));
    if (entry !== undefined && entry.epoch <= epoch) this.#end(entry, 'used');
  }

  /** Lets go of all of them; how many there were. */
  void(): number {
    const entries = [...this.#entries.values()];
    for (const entry of entries) this.#end(entry, 'void');
    this.#context.clock.clearTimeout(this.#timer);
    this.#timer = undefined;
    return entries.length;
  }

  #answer(item: BookingItem, { directorId, dryRun = false }: ReserveRequest): BookingResult {
    const context = this.#context;
    const host: HostName = { userId: item.userId, relayHostId: item.relayHostId };
    const before = this.#entries.get(hostKey(host));
    const { effect, ...result } = decideBooking({
      mode: context.mode(),
      dryRun,
      draining: context.draining(),
      sticky: item.sticky ?? false,
      epoch: item.epoch,
      seated: context.seatedEpoch(host),
      booked: before?.epoch ?? 0,
      left: context.leftEpoch(host),
      unitFree: before?.unit.kept === true || context.units.hasRoom(context.ceiling),
      intakeFree: this.intake.tokens >= 1,
    });
    const expiresAt = context.clock.now() + item.ttlMs;
    if (effect === 'extend' && before !== undefined) before.expiresAt = Math.max(before.expiresAt, expiresAt);
    if (effect === 'book') {
      const booking = { host, epoch: item.epoch, reservedBy: directorId };
      if (!this.#book(booking, before, expiresAt)) return { outcome: 'full' };
      if (item.sticky !== true) this.intake.take();
    }
    return result;
  }

  #book(booking: Booking, before: Entry | undefined, expiresAt: number): boolean {
    const { units, ceiling } = this.#context;
    const handedOver = before?.unit.kept === true ? before.unit : null;
    const unit = handedOver ?? units.booking(ceiling);
    if (typeof unit === 'string') return false;
    if (before !== undefined) this.#end(before, 'replaced', handedOver !== null);
    const entry: Entry = { ...booking, unit, expiresAt, ended: null };
    this.#entries.set(hostKey(entry.host), entry);
    this.#armSweep();
    this.#context.booked(entry);
    return true;
  }

  #current(host: HostName): Entry | undefined {
    const entry = this.#entries.get(hostKey(host));
    return entry !== undefined && entry.expiresAt > this.#context.clock.now() ? entry : undefined;
  }

  #end(entry: Entry, end: BookingEnd, unitStays = false): void {
    entry.ended = end;
    this.#entries.delete(hostKey(entry.host));
    if (!unitStays) entry.unit.release();
    this.#context.ended(end);
  }

  #sweep(): void {
    const now = this.#context.clock.now();
    for (const entry of this.#entries.values()) if (entry.expiresAt <= now) this.#end(entry, 'expired');
  }

  #armSweep(): void {
    if (this.#timer !== undefined) return;
    this.#timer = this.#context.clock.setTimeout(() => {
      this.#timer = undefined;
      this.#sweep();
      if (this.#entries.size > 0) this.#armSweep();
    }, SWEEP_MS);
  }
}
