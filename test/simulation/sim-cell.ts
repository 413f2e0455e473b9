import { randomUUID } from 'node:crypto';
import type { DemoteOutcome, DemoteRequest, ReserveRequest } from '../../contract/booking.ts';
import { CLOSE, LIMITS } from '../../contract/index.ts';
import type { FeedCursor, FeedPage } from '../../contract/seat-feed.ts';
import { Book } from '../../server/cell/book.ts';
import { helloGround } from '../../server/cell/hello-ground.ts';
import { type SeatedSession, SeatLog } from '../../server/cell/seat-log.ts';
import { type HostName, hostKey } from '../../server/cell/seats.ts';
import { bookingCeiling, type Unit, Units } from '../../server/cell/units.ts';
import type { Timer } from '../../server/clock.ts';
import type { AdmitMode, Change } from '../../server/sql-interface.ts';
import type { SimDatabase } from './sim-database.ts';
import type { VirtualTime } from './virtual-time.ts';

export interface SimCellPlan {
  id: string;
  region: string;
  mode: AdmitMode;
  /** Hosts that it may seat at once: rebinds apart, what is kept for them stays free. */
  mostHosts: number;
}

export interface CellLimit {
  hardCap: number;
  unobservedBound: number;
}
/** How fast a cell takes in new hosts, per second. */
export const INTAKE_PER_SEC = LIMITS.defaultIntakePerSec;

/** A control on a simulated cell. Its socket is gone while `orphaned`. */
export interface SimSession extends SeatedSession {
  state: 'active' | 'orphaned' | 'drain-only' | 'closed';
  demoted: boolean;
  leased: boolean;
  readonly cell: SimCell;
  readonly unit: Unit;
  /** The host learns that its socket is gone. */
  readonly lost: (code: number) => void;
  timer: Timer | undefined;
}

export type Hello = { seated: SimSession } | { refused: number };

const REREGISTER_MS = 5_000;

/** What a cell takes by; a fault of the simulation changes it behind the back of whoever watches. */
export interface CellRules {
  limit: CellLimit;
  intakePerSec: number;
  /** Whether it lets go of a seat that is outranked. */
  demotes: boolean;
  /** Whether Postgres is told how it really admits. */
  saysMode: boolean;
}

export const REAL_RULES: Omit<CellRules, 'limit'> = { intakePerSec: INTAKE_PER_SEC, demotes: true, saysMode: true };

/** What a cell tells whoever watches the run. */
export interface CellWitness {
  booked(cell: SimCell, host: HostName, epoch: number): void;
  seated(session: SimSession): void;
  left(session: SimSession): void;
}

/**
 * One cell: the real book, units, seat log and rules of admission, around sockets that are only thought of. `restart` is a new
 * process: it has forgotten everything.
 */
export class SimCell {
  readonly id: string;
  readonly region: string;
  readonly url: string;
  readonly mostHosts: number;
  readonly #time: VirtualTime;
  readonly #db: SimDatabase;
  readonly #witness: CellWitness;
  #mode: AdmitMode;
  readonly #recorded: AdmitMode;
  readonly #rules: CellRules;
  incarnation = '';
  units: Units;
  up = false;
  draining = false;
  /** Answers nobody until then. */
  stalledUntil = 0;
  #startedAt = 0;
  #log: SeatLog;
  #book: Book;
  #sessions = new Map<string, SimSession>();
  #left = new Map<string, number>();
  #generations = new Map<string, number>();

  constructor(time: VirtualTime, db: SimDatabase, witness: CellWitness, plan: SimCellPlan, rules: CellRules) {
    this.#time = time;
    this.#db = db;
    this.#witness = witness;
    this.id = plan.id;
    this.region = plan.region;
    this.url = `http://${plan.id}.localhost`;
    this.#mode = plan.mode;
    this.#recorded = plan.mode;
    this.mostHosts = plan.mostHosts;
    this.#rules = rules;
    this.units = new Units(rules.limit.hardCap);
    this.#log = new SeatLog(time, '');
    this.#book = this.#newBook();
  }

  get sessions(): Iterable<SimSession> {
    return this.#sessions.values();
  }

  get answers(): boolean {
    return this.up && this.#time.now() >= this.stalledUntil;
  }

  /** A new process. */
  async start(): Promise<void> {
    this.incarnation = randomUUID();
    this.#startedAt = this.#time.wallNow();
    this.units = new Units(this.#rules.limit.hardCap);
    this.#log = new SeatLog(this.#time, this.incarnation);
    this.#sessions = new Map();
    this.#left = new Map();
    this.#generations = new Map();
    this.#book = this.#newBook();
    this.draining = false;
    this.up = true;
    this.#mode = this.#recorded;
    await this.beat();
    await this.#sayMode();
  }

  get tripped(): boolean {
    return this.up && this.#mode !== this.#recorded;
  }

  /** As the dead-man's switch does: from now on the database admits, and every host here is given a lease. */
  async trip(): Promise<void> {
    if (this.#recorded !== 'reserve' || this.#mode === 'db') return;
    this.#mode = 'db';
    this.#book.void();
    while (this.tripped) {
      await this.#sayMode();
      await this.#lease();
      await this.#time.sleep(REREGISTER_MS);
    }
  }

  /** An operator's way back. */
  async rearm(): Promise<void> {
    if (!this.tripped) return;
    this.#mode = this.#recorded;
    await this.#sayMode();
  }

  /** The process is gone, with every socket. */
  kill(): void {
    this.up = false;
    for (const session of [...this.#sessions.values()]) this.#end(session, 1006);
  }

  /** SIGTERM: everybody is told, and it is gone a moment later. */
  async drain(): Promise<void> {
    this.draining = true;
    for (const session of [...this.#sessions.values()]) this.#end(session, CLOSE.DRAINING);
    await this.beat();
    await this.#time.sleep(1_000);
    this.up = false;
  }

  async beat(): Promise<void> {
    if (!this.answers) return;
    const { units } = this;
    await this.#db
      .call('heartbeat', {
        cell_id: this.id,
        incarnation: this.incarnation,
        url: this.url,
        region: this.region,
        started_at: new Date(this.#startedAt),
        ready: !this.draining,
        load: {
          enforced_units: units.enforced,
          inclusion_watermark: units.inclusionWatermark,
          total_connections: units.physical,
          in_flight_connections: units.inFlight,
          reserved_units: units.reserved,
          hard_cap: this.#rules.limit.hardCap,
          unobserved_bound: this.#rules.limit.unobservedBound,
        },
      })
      .catch(() => undefined);
  }

  /** Leases of hosts that the database admitted are renewed; those admitted from memory have none. */
  async renew(): Promise<void> {
    if (!this.answers) return;
    const leased = [...this.#sessions.values()].filter((session) => session.leased && session.state !== 'closed');
    if (leased.length === 0) return;
    await this.#db
      .call('renew_leases', {
        cell_id: this.id,
        incarnation: this.incarnation,
        leases: leased.map(({ host, epoch, generation }) => ({
          user_id: host.userId,
          relay_host_id: host.relayHostId,
          epoch,
          generation,
          units: 1,
          inclusion_watermark: this.units.inclusionWatermark,
        })),
      })
      .catch(() => undefined);
  }

  page(cursor: FeedCursor | null): FeedPage {
    const { perSec, tokens } = this.#book.intake;
    return {
      v: 1,
      cellId: this.id,
      incarnation: this.incarnation,
      at: this.#time.wallNow(),
      draining: this.draining,
      counts: {
        controls: this.#sessions.size,
        seats: this.#log.seats,
        bookings: this.#book.size,
        units: this.units.enforced,
        ceiling: this.#book.ceiling,
      },
      intake: { perSec, burst: LIMITS.intakeBurst, tokens },
      admitModeEffective: this.#mode,
      admitModeRaw: this.#mode,
      ...this.#log.page(cursor),
    };
  }

  book(request: ReserveRequest) {
    return this.#book.take(request);
  }

  demote({ userId, relayHostId, epoch, joinedAt }: DemoteRequest): DemoteOutcome {
    if (this.#mode !== 'reserve') return 'off';
    const session = this.#sessions.get(hostKey({ userId, relayHostId }));
    if (session === undefined || session.epoch !== epoch) return 'not-seated';
    if (this.#log.joinedAt(session) !== joinedAt) return 'not-seated';
    if (session.demoted) return 'already-demoted';
    if (!this.#rules.demotes) return 'demoted';
    session.demoted = true;
    this.#noteLeft(session.host, epoch + 1);
    if (session.state === 'active') session.state = 'drain-only';
    this.#log.stateChanged(session);
    this.#time.setTimeout(() => this.#end(session, CLOSE.WRONG_CELL), LIMITS.demotedGraceMs);
    return 'demoted';
  }

  /** A host's hello and proof, at an epoch. */
  async hello(host: HostName, epoch: number, lost: (code: number) => void): Promise<Hello> {
    if (!this.answers || this.draining) return { refused: 1006 };
    const unit = this.#admit(host);
    if (typeof unit === 'string') return { refused: 503 };
    const incarnation = this.incarnation;
    const seated = await this.#seat(host, epoch, unit, lost);
    if ('refused' in seated || incarnation !== this.incarnation) unit.release();
    return incarnation === this.incarnation ? seated : { refused: 1006 };
  }

  /** The host's socket breaks; the cell notices at once, or only by its silence. Its seat is kept for the grace. */
  breakSocket(session: SimSession, silently: boolean): void {
    if (silently) {
      session.timer = this.#time.setTimeout(() => this.breakSocket(session, false), LIMITS.controlSilenceTimeoutMs);
      return;
    }
    if (session.state !== 'active' && session.state !== 'drain-only') return;
    const stays = session.state === 'active';
    if (!stays) {
      this.#end(session, 1006);
      return;
    }
    session.state = 'orphaned';
    session.timer = this.#time.setTimeout(() => this.#end(session, 1006), LIMITS.orphanGraceMs);
    session.lost(1006);
  }

  /** A change that names this cell as the one a host has left. */
  moved(change: Change): void {
    if (change.user_id === null || change.relay_host_id === null || change.epoch === null) return;
    const host = { userId: change.user_id, relayHostId: change.relay_host_id };
    this.#noteLeft(host, change.epoch);
    const session = this.#sessions.get(hostKey(host));
    if (session !== undefined && session.epoch < change.epoch && this.#rules.demotes)
      this.#end(session, CLOSE.WRONG_CELL);
  }

  #admit(host: HostName): Unit | string {
    const lent = this.#book.lendUnit(host);
    return lent ?? this.units.control(this.#sessions.has(hostKey(host)));
  }

  async #seat(host: HostName, epoch: number, unit: Unit, lost: (code: number) => void): Promise<Hello> {
    const key = hostKey(host);
    const seat = this.#sessions.get(key);
    const booking = this.#book.find(host, epoch) ?? null;
    const ground = helloGround({
      mode: this.#mode,
      epoch,
      booked: booking !== null && this.#book.honours(booking),
      outranked: (this.#left.get(key) ?? 0) > epoch || (seat?.epoch ?? 0) > epoch,
      seat: seat && { epoch: seat.epoch, drained: seat.state === 'drain-only' },
      leaver: this.#log.leaver(host),
      ticket: false,
      shedding: this.#db.away,
    });
    if (ground === 'shed') return { refused: CLOSE.LIMIT_EXCEEDED };
    const generation = (this.#generations.get(key) ?? 0) + 1;
    this.#generations.set(key, generation);
    if (ground === 'database' && !(await this.#activate(host, epoch, generation))) return { refused: CLOSE.WRONG_CELL };
    unit.opened();
    const before = this.#sessions.get(key);
    if (before !== undefined && before.epoch > epoch) return { refused: CLOSE.WRONG_CELL };
    if (before !== undefined) this.#replace(before);
    const leased = ground === 'database';
    const session: SimSession = {
      host,
      epoch,
      generation,
      state: 'active',
      demoted: false,
      leased,
      cell: this,
      unit,
      lost,
      timer: undefined,
    };
    this.#sessions.set(key, session);
    this.#log.joined(session, booking === null ? {} : { reservedBy: booking.reservedBy });
    this.#book.seated(host, epoch, booking);
    this.#witness.seated(session);
    return { seated: session };
  }

  async #activate(host: HostName, epoch: number, generation: number): Promise<boolean> {
    const who = { user_id: host.userId, relay_host_id: host.relayHostId };
    try {
      if (!(await this.#db.call('verify_seat', { ...who, cell_id: this.id, epoch }))) return false;
      const caller = { cell_id: this.id, incarnation: this.incarnation };
      const inclusion_watermark = this.units.inclusionWatermark;
      const activated = await this.#db.call('activate_control', {
        ...who,
        ...caller,
        epoch,
        generation,
        inclusion_watermark,
      });
      return activated.outcome === 'active';
    } catch {
      return false;
    }
  }

  /** A newer generation takes the seat: nobody leaves. */
  #replace(session: SimSession): void {
    this.#time.clearTimeout(session.timer);
    const open = session.state !== 'orphaned';
    session.state = 'closed';
    session.unit.release();
    this.#witness.left(session);
    if (open) session.lost(CLOSE.WRONG_CELL);
  }

  #end(session: SimSession, code: number): void {
    if (session.state === 'closed') return;
    this.#time.clearTimeout(session.timer);
    const open = session.state !== 'orphaned';
    session.state = 'closed';
    this.#sessions.delete(hostKey(session.host));
    session.unit.release();
    this.#log.left(session, session.demoted ? CLOSE.WRONG_CELL : code);
    this.#witness.left(session);
    if (open) session.lost(code);
    if (session.leased && this.up) void this.#release(session);
  }

  async #release({ host, epoch, generation }: SimSession): Promise<void> {
    await this.#db
      .call('release_lease', {
        user_id: host.userId,
        relay_host_id: host.relayHostId,
        cell_id: this.id,
        incarnation: this.incarnation,
        epoch,
        generation,
      })
      .catch(() => undefined);
  }

  async #sayMode(): Promise<void> {
    if (!this.answers || !this.#rules.saysMode || this.#recorded === 'db') return;
    const caller = { cell_id: this.id, incarnation: this.incarnation };
    await this.#db.call('record_effective_mode', { ...caller, mode: this.#mode }).catch(() => undefined);
  }

  /** Whom the rows refuse for good goes elsewhere. */
  async #lease(): Promise<void> {
    const unleased = [...this.#sessions.values()].filter(({ leased }) => !leased);
    if (!this.answers || unleased.length === 0) return;
    const caller = { cell_id: this.id, incarnation: this.incarnation };
    const inclusion_watermark = this.units.inclusionWatermark;
    const controls = unleased.map(({ host, epoch, generation }) => ({
      user_id: host.userId,
      relay_host_id: host.relayHostId,
      epoch,
      generation,
      units: 1,
      inclusion_watermark,
    }));
    const answers = await this.#db.call('reregister_controls', { ...caller, controls }).catch(() => []);
    for (const { user_id: userId, relay_host_id: relayHostId, generation, outcome } of answers) {
      const session = this.#sessions.get(hostKey({ userId, relayHostId }));
      if (session?.generation !== generation) continue;
      if (outcome === 'active') session.leased = true;
      else if (outcome === 'wrong_cell' || outcome === 'wrong_epoch') this.#end(session, CLOSE.WRONG_CELL);
    }
  }

  #noteLeft(host: HostName, epoch: number): void {
    const key = hostKey(host);
    this.#left.set(key, Math.max(epoch, this.#left.get(key) ?? 0));
  }

  #newBook(): Book {
    return new Book({
      clock: this.#time,
      units: this.units,
      ceiling: bookingCeiling(this.#rules.limit, this.#rules.limit.hardCap),
      mode: () => this.#mode,
      draining: () => this.draining,
      intakePerSec: () => this.#rules.intakePerSec,
      seatedEpoch: (host) => {
        const session = this.#sessions.get(hostKey(host));
        return session === undefined || session.demoted ? 0 : session.epoch;
      },
      leftEpoch: (host) => this.#left.get(hostKey(host)) ?? 0,
      booked: ({ host, epoch, reservedBy }) => {
        this.#log.reserved(host, epoch, reservedBy);
        this.#witness.booked(this, host, epoch);
      },
      ended: () => undefined,
    });
  }
}
