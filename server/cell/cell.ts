import { randomUUID } from 'node:crypto';
import { LIMITS } from '../../contract/index.ts';
import { type ChangeStream, openChangeStream } from '../change-stream.ts';
import { type CorkLender, openCorkLender } from '../cork-lender.ts';
import { PreAuth } from '../pre-auth.ts';
import type { ReadinessReport, RoleContext, RolePart } from '../role-part.ts';
import { cellAudience, verifyServiceToken } from '../service-token.ts';
import type { HeartbeatLoad } from '../sql-interface.ts';
import { createRelayTokenVerifier, inspectAssignmentLease } from '../tokens.ts';
import { type App, selfTestPause } from '../uws.ts';
import { AdmitModes } from './admit-modes.ts';
import { registerBookings } from './bookings-route.ts';
import { openBook } from './cell-book.ts';
import type { CellCore, CellIdentity } from './cell-core.ts';
import { createCellMetrics } from './cell-metrics.ts';
import { CellOrders } from './cell-orders.ts';
import { reactToChange } from './change-reactions.ts';
import { ControlMessages } from './control-messages.ts';
import { Drain } from './drain.ts';
import { Heartbeat } from './heartbeat.ts';
import { HostQueue } from './host-queue.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import { Limiter } from './limiter.ts';
import { modeGauges } from './mode-metrics.ts';
import type { PeerSocket } from './peer-socket.ts';
import { registerDirectorOnly, registerSocketRoutes } from './routes.ts';
import { registerSeatFeed } from './seat-feed-route.ts';
import { SeatLog } from './seat-log.ts';
import { Seats } from './seats.ts';
import { connectionEffects, sessionEffects } from './session-effects.ts';
import { Splicer } from './splicer.ts';
import { bookingCeiling, Units } from './units.ts';

/** How often a cell looks for changes that concern it, rung or not (02, change log). */
const CHANGE_POLL_MS = 1_000;
/** Releases and re-acquisitions leave room in the pool for hosts and phones that are at the door. */
const BACKGROUND_CALLS = 4;
const MAX_BACKGROUND_WAITING = 10_000;
/** More sockets of one host than this do not prove themselves at once. */
const MAX_WAITING_ACTIVATIONS = 8;
/** Of the 5 s that a process has to stop. */
const STOP_MS = 2_500;

/** The cell's part of a process: the three WebSocket paths, and what keeps their seats true. */
export function createCell(context: RoleContext): RolePart {
  return new Cell(context);
}

class Cell implements RolePart {
  readonly #context: RoleContext;
  readonly #core: CellCore;
  readonly #messages: ControlMessages;
  readonly #heartbeat: Heartbeat;
  readonly #sockets = new Set<PeerSocket>();
  readonly #units: Units;
  #splicer: Splicer | null = null;
  #changes: ChangeStream | null = null;
  #lender: CorkLender | null = null;
  #closing = false;

  constructor(context: RoleContext) {
    this.#context = context;
    this.#units = new Units(context.config.connectionLimit?.hardCap ?? null);
    this.#core = this.#createCore();
    this.#messages = new ControlMessages(this.#core);
    this.#heartbeat = new Heartbeat(this.#core, this.#heartbeatSource());
  }

  register(app: App): void {
    if (this.#context.config.role === 'cell') registerDirectorOnly(app);
    registerSeatFeed(app, this.#core, this.#units);
    registerBookings(app, this.#core);
    registerSocketRoutes(app, {
      core: this.#core,
      units: this.#units,
      preAuth: new PreAuth(this.#context.clock),
      sockets: this.#sockets,
      sessionEffects: sessionEffects(this.#core, this.#messages),
      connectionEffects: connectionEffects(this.#core),
    });
  }

  async start(): Promise<void> {
    const { config, db, log, metrics, clock, peerTime } = this.#context;
    this.#lender = await openCorkLender();
    if (this.#lender === null) log.warn({ event: 'orca_relay_cork_lender_unavailable' });
    const pausing = config.splicePause && (await selfTestPause());
    if (config.splicePause && !pausing) log.warn({ event: 'orca_relay_pausing_unavailable' });
    this.#splicer = new Splicer({ clock: peerTime, metrics, pausing });
    this.#changes = openChangeStream({
      databaseUrl: config.databaseUrl,
      db,
      cellId: config.cellId,
      pollMs: CHANGE_POLL_MS,
      onChange: (change) => reactToChange(this.#core, change),
      onResync: () => {
        this.#core.leases.renewAll();
        this.#core.orders.read();
      },
      log,
      metrics,
      clock,
    });
    this.#core.orders.read();
    this.#core.modes.start();
    this.#heartbeat.start();
  }

  async readiness(): Promise<ReadinessReport> {
    const accepting = !this.#closing && this.#heartbeat.heard;
    if (this.#core.modes.flags.readinessLocal) {
      return { accepting: accepting && this.#core.tokens.keysLoaded(), local: true };
    }
    if (this.#context.config.auth === null) return { accepting };
    return { accepting, jwks: await this.#core.tokens.ready() };
  }

  /** SIGTERM: a drain with no grace. Everybody reads why before the process is gone, and the leases are given up. */
  async stop(): Promise<void> {
    this.#closing = true;
    this.#stopFollowing();
    const farewell = this.#heartbeat.farewell();
    for (const session of this.#core.seats.sessions()) session.drain(0, 'drained');
    await this.#finish(farewell);
  }

  /** Another process of this cell has taken over: the seats are its own now. */
  #standDown(): void {
    if (this.#closing) return;
    this.#closing = true;
    this.#heartbeat.stop();
    this.#stopFollowing();
    for (const session of this.#core.seats.sessions()) session.end('stale-incarnation');
    for (const socket of this.#sockets) socket.close('relay draining');
    this.#context.leave('another process of this cell has taken over');
  }

  /** The last word on this process is spoken: no order changes it. */
  #stopFollowing(): void {
    this.#core.orders.stop();
    this.#core.modes.stop();
    this.#core.drain.stop();
    this.#core.book.void();
  }

  async #finish(farewell: Promise<void>): Promise<void> {
    for (const socket of this.#sockets) socket.close('relay draining');
    const { clock } = this.#context;
    const settled = Promise.all([farewell, this.#core.background.idle(), this.#changes?.stop(), this.#socketsGone()]);
    await Promise.race([settled, new Promise<void>((resolve) => clock.setTimeout(resolve, STOP_MS))]);
    this.#core.leases.stop();
    this.#splicer?.stop();
    this.#lender?.close();
  }

  /** Resolves with the last socket; each is gone within the second that a close may take. */
  async #socketsGone(): Promise<void> {
    await Promise.all([...this.#sockets].map((socket) => new Promise<void>((resolve) => socket.onEnd(resolve))));
  }

  #createCore(): CellCore {
    const { config, db, log, metrics, clock, peerTime } = this.#context;
    const identity: CellIdentity = {
      cellId: config.cellId,
      region: config.region,
      incarnation: randomUUID(),
      startedAt: new Date(),
    };
    const seats = new Seats();
    const core: CellCore = {
      identity,
      clock,
      peerTime,
      db,
      log,
      metrics: createCellMetrics(metrics, {
        controls: () => seats.size,
        draining: () => core.drain.ordered,
        modes: modeGauges(() => core),
        splices: () => seats.connections().filter(({ active }) => active).length,
        pending: () => seats.connections().filter(({ pending }) => pending).length,
        bookings: () => core.book.size,
        units: () => this.#units,
      }),
      tokens: createRelayTokenVerifier(config, clock),
      seats,
      seatLog: new SeatLog(clock, identity.incarnation),
      book: openBook(clock, () => core, this.#units, bookingCeiling(config.connectionLimit, config.cellCapacity)),
      activations: new HostQueue(clock, LIMITS.activationWaitMs, MAX_WAITING_ACTIVATIONS),
      background: new Limiter(BACKGROUND_CALLS, MAX_BACKGROUND_WAITING),
      leases: new LeaseKeeper(() => core),
      orders: new CellOrders(() => core),
      drain: new Drain(() => core),
      modes: new AdmitModes(() => core),
      splicer: () => this.#splicer as Splicer,
      watermark: () => this.#units.inclusionWatermark,
      serviceCaller: (token) =>
        verifyServiceToken(config.signingKey, token, { audience: cellAudience(config.cellId) }, clock),
      inspectLease: (lease, expected) => inspectAssignmentLease(config.signingKey, lease, expected, clock),
      origin: () => this.#context.origin(),
      closing: () => this.#closing,
      admitted: () => this.#splicer !== null && this.#heartbeat.heard,
      reportSoon: () => this.#heartbeat.soon(),
      standDown: () => this.#standDown(),
    };
    return core;
  }

  /** A capped cell says what its count is made of, and against which limit. */
  #load(): HeartbeatLoad {
    const units = this.#units;
    const load = {
      enforced_units: units.enforced,
      inclusion_watermark: units.inclusionWatermark,
      ...this.#core.drain.progress(),
      ...this.#contact(),
    };
    const limit = this.#context.config.connectionLimit;
    if (limit === null) return load;
    return {
      ...load,
      total_connections: units.physical,
      in_flight_connections: units.inFlight,
      reserved_units: units.reserved,
      hard_cap: limit.hardCap,
      unobserved_bound: limit.unobservedBound,
    };
  }

  #contact(): Pick<HeartbeatLoad, 'director_contact_ms'> {
    const { directorContactMs } = this.#core.modes;
    return directorContactMs === undefined ? {} : { director_contact_ms: directorContactMs };
  }

  #heartbeatSource() {
    const { config } = this.#context;
    return {
      url: () => config.cellUrl ?? this.#context.origin(),
      ready: () => !this.#closing && this.#core.tokens.keysLoaded(),
      load: () => this.#load(),
      registration: () =>
        `orca-relay sql "select relay_v1.register_cell('${config.cellId}', '${config.cellUrl ?? this.#context.origin()}', '${config.region}', ${config.cellCapacity})"`,
    };
  }
}
