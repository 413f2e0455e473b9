import { LIMITS } from '../../../contract/index.ts';
import { activate } from '../../../server/cell/activation.ts';
import { ControlMessages } from '../../../server/cell/control-messages.ts';
import { ControlSession } from '../../../server/cell/control-session.ts';
import { groundOf, type HelloGround, type Shown } from '../../../server/cell/hello-ground.ts';
import { sessionEffects } from '../../../server/cell/session-effects.ts';
import type { FreshDatabase } from '../../support/database.ts';
import type { HandClock } from '../../support/hand-clock.ts';
import { startCore, type TestCore } from './core.ts';
import { MemorySocket } from './memory-socket.ts';

export interface Host {
  userId: string;
  relayHostId: string;
}

export interface Arrived {
  session: ControlSession;
  socket: MemorySocket;
  shown: Shown;
}

let hosts = 0;

export function newHost(): Host {
  hosts += 1;
  return { userId: `user-${hosts}`, relayHostId: `host${String(hosts).padStart(12, '0')}` };
}

/** A cell in reserve mode around real Postgres, and what hosts and directors do to it. */
export class ReserveCell {
  readonly core: TestCore;
  readonly #database: FreshDatabase;

  private constructor(core: TestCore, database: FreshDatabase) {
    this.core = core;
    this.#database = database;
  }

  /** `c1` is registered. */
  static async start(database: FreshDatabase, clock: HandClock): Promise<ReserveCell> {
    await database.query('delete from relay.lease');
    await database.query('delete from relay.cell_runtime');
    const cell = new ReserveCell(startCore(database.urlFor('relay_cell'), clock), database);
    const { db, identity } = cell.core;
    const answer = await db.call('heartbeat', {
      cell_id: identity.cellId,
      incarnation: identity.incarnation,
      url: 'http://c1.relay.test',
      region: identity.region,
      started_at: identity.startedAt,
      ready: true,
      load: { enforced_units: 0, inclusion_watermark: 0 },
    });
    if (answer !== 'ok') throw new Error(`the heartbeat: ${answer}`);
    cell.toMode('reserve', 1);
    return cell;
  }

  async stop(): Promise<void> {
    const { core } = this;
    core.modes.stop();
    core.orders.stop();
    core.leases.stop();
    core.book.void();
    await core.background.idle();
    await core.close();
  }

  toMode(admitMode: 'db' | 'reserve', generation: number): void {
    this.core.modes.follow({ flags: { admitMode }, flags_generation: generation });
  }

  book(host: Host, epoch: number, over: { ttlMs?: number; sticky?: boolean } = {}) {
    const item = { ...host, epoch, ttlMs: LIMITS.bookingTtlMs, ...over };
    return this.core.book.take({ v: 1, directorId: 'director-1', items: [item] })[0];
  }

  /** A host at its hello: what it shows is looked up as the cell does then. */
  arrive(host: Host, epoch: number): Arrived {
    const { core } = this;
    const socket = new MemorySocket();
    const session = new ControlSession(core, sessionEffects(core, new ControlMessages(core)), {
      identity: { ...host, profileId: 'p', organizationId: null, expiresAt: core.clock.wallNow() + 86_400_000 },
      socket: socket.peer,
      capabilities: new Set(),
      watermark: 1,
    });
    return { session, socket, shown: { epoch, ticket: false, booking: core.book.find(host, epoch) ?? null } };
  }

  /** Its proof has landed. */
  async prove({ session, socket, shown }: Arrived, base: ControlSession | null = null): Promise<void> {
    const frame = { assignmentEpoch: shown.epoch, appVersion: '1', controlResumeSecret: base?.resumeSecret } as never;
    await activate(this.core, session, socket.peer, { frame, base, shown });
  }

  async seatBooked(host: Host, epoch: number): Promise<Arrived> {
    const answer = this.book(host, epoch);
    if (answer?.outcome !== 'ok') throw new Error(`the booking: ${answer?.outcome}`);
    const arrived = this.arrive(host, epoch);
    await this.prove(arrived);
    if (this.core.seats.of(host) !== arrived.session) throw new Error('the host was not seated');
    return arrived;
  }

  ground(host: Host, epoch: number): HelloGround {
    return groundOf(this.core, host, this.core.modes.raw, this.arrive(host, epoch).shown);
  }

  leasesOf({ relayHostId }: Host) {
    const text = 'select epoch::int, generation::int, state from relay.lease where relay_host_id = $1';
    return this.#database.query(text, [relayHostId]);
  }

  async giveRow(host: Host, epoch: number): Promise<void> {
    await this.#database.query(
      `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
       values ($1, $2, 'c1', $3, relay.now()) on conflict (user_id, relay_host_id) do update set epoch = excluded.epoch`,
      [host.userId, host.relayHostId, epoch],
    );
  }

  /** The seat log, from its first line. */
  told() {
    const page = this.core.seatLog.page({ incarnation: this.core.identity.incarnation, seq: 0 });
    if (!('changes' in page)) throw new Error('a full snapshot came instead');
    return page.changes.map(({ kind, epoch, reservedBy, closeCode }) => ({ kind, epoch, reservedBy, closeCode }));
  }
}
