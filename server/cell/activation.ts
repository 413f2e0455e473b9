import type { CloseReason } from '../../contract/index.ts';
import type { ActivateControlResult } from '../sql-interface.ts';
import type { Booking } from './book.ts';
import type { CellCore } from './cell-core.ts';
import type { ControlSession } from './control-session.ts';
import type { Hello } from './handshake.ts';
import { groundOf, isOutranked, type Shown } from './hello-ground.ts';
import type { PeerSocket } from './peer-socket.ts';
import { hostKey } from './seats.ts';

type Activated = ActivateControlResult['outcome'] | 'database_error';

/** How a control that proved itself is refused all the same; null seats it. */
const REFUSALS: Record<Activated, CloseReason | null> = {
  active: null,
  wrong_epoch: 'assignment changed during host proof',
  wrong_cell: 'assignment changed during host proof',
  no_assignment: 'assignment changed during host proof',
  stale_cell_incarnation: 'relay draining',
  busy: 'relay temporarily unavailable',
  database_error: 'relay temporarily unavailable',
};

/**
 * Seats a host that has proved itself, one activation of a host at a time (`wire` 2.3.3): as the session it continues, or in
 * a new generation that replaces whatever generation is here. Of two sockets of one host the later activation wins.
 */
export async function activate(
  core: CellCore,
  session: ControlSession,
  socket: PeerSocket,
  hello: Hello,
): Promise<void> {
  const turn = await core.activations.turn(hostKey(session.host));
  if (!turn.granted) {
    refuse(core, session, 'control activation queue stalled');
    return;
  }
  try {
    await activateInTurn(core, session, socket, hello);
  } finally {
    turn.release();
  }
}

async function activateInTurn(
  core: CellCore,
  session: ControlSession,
  socket: PeerSocket,
  hello: Hello,
): Promise<void> {
  const { base } = hello;
  if (!socket.open) {
    session.abandon();
    return;
  }
  const refusedFirst = refusalOf(core, hello, session);
  if (refusedFirst !== null) {
    refuse(core, session, refusedFirst);
    return;
  }
  const generation = base?.generation ?? core.seats.nextGeneration(session.host);
  const claim = { epoch: hello.frame.assignmentEpoch, generation, watermark: session.watermark };
  if (standsInMemory(core, session, hello)) {
    seat(core, session, socket, hello, claim, 'memory');
    return;
  }
  const outcome = await askDatabase(core, session, claim);
  if (outcome === 'stale_cell_incarnation') core.standDown();
  const refusal = REFUSALS[outcome] ?? refusalOf(core, hello, session);
  if (refusal === null && socket.open) {
    seat(core, session, socket, hello, claim, 'lease');
    return;
  }
  if (isNobodys(outcome, base)) {
    core.leases.release(session.host, claim, core.seats.closeReason(session.host) ?? null);
  }
  if (refusal === null) session.abandon();
  else refuse(core, session, refusal);
}

/**
 * Whether an activation that seated nobody may have left a lease: of a generation that was never used, or of a session that
 * ended while it was to be continued, and whose own release may have come first. A lost answer may have been a yes.
 */
function isNobodys(outcome: Activated, base: ControlSession | null): boolean {
  if (outcome !== 'active' && outcome !== 'database_error') return false;
  return base === null || base.state === 'closed';
}

/** Checked before the database is asked and again after: a great deal can happen meanwhile. */
function refusalOf(core: CellCore, { base, frame }: Hello, session: ControlSession): CloseReason | null {
  if (core.closing() || core.drain.ordered) return 'relay draining';
  if (isOutranked(core, session.host, frame.assignmentEpoch)) return 'assignment changed during host proof';
  if (base === null) return null;
  const continues = core.seats.of(session.host) === base && base.rebindable(frame.controlResumeSecret);
  return continues ? null : 'control activation superseded';
}

/** Still so after its proof. A cell that has left reserve mode meanwhile takes the lease, and so the database decides. */
function standsInMemory(core: CellCore, { host }: ControlSession, { shown }: Hello): boolean {
  if (shown === null) return false;
  const ground = groundOf(core, host, core.modes.raw, shown);
  return ground !== 'database' && ground !== 'shed';
}

async function askDatabase(
  core: CellCore,
  session: ControlSession,
  claim: { epoch: number; generation: number; watermark: number },
): Promise<Activated> {
  try {
    return await core.leases.activate(session.host, claim);
  } catch (error) {
    core.log.warn({ event: 'orca_relay_control_activation_failed', error });
    return 'database_error';
  }
}

function seat(
  core: CellCore,
  session: ControlSession,
  socket: PeerSocket,
  { frame, base, shown }: Hello,
  claim: { epoch: number; generation: number; watermark: number },
  by: 'lease' | 'memory',
): void {
  const { appVersion } = frame;
  const booking = by === 'memory' ? goodBooking(core, shown) : null;
  const seated = base ?? session;
  if (base !== null) {
    base.rebind(session, appVersion);
    core.metrics.rebinds.inc();
    core.metrics.authentications.inc({ outcome: 'rebound' });
  } else {
    replaceBefore(core, session, by);
    session.activate({ epoch: claim.epoch, generation: claim.generation, appVersion });
    core.seats.seat(session);
    core.metrics.authentications.inc({ outcome: 'seated' });
  }
  if (by === 'lease' && !core.leases.holds(seated)) core.leases.keep(seated);
  core.book.seated(session.host, claim.epoch, booking);
  core.seatLog.joined(seated, booking === null ? {} : { reservedBy: booking.reservedBy });
  core.seats.forgetCloseReason(session.host);
  acknowledge(seated, socket);
}

function goodBooking(core: CellCore, shown: Shown | null): Booking | null {
  const booking = shown?.booking ?? null;
  return booking !== null && core.book.honours(booking) ? booking : null;
}

/** The lease of the generation before passes to the new one, unless that takes none. */
function replaceBefore(core: CellCore, session: ControlSession, by: 'lease' | 'memory'): void {
  const before = core.seats.of(session.host);
  if (before === undefined) return;
  const leased = core.leases.holds(before);
  before.end('new-generation');
  if (leased && by === 'memory') core.leases.release(before.host, before, null);
}

function acknowledge(session: ControlSession, socket: PeerSocket): void {
  if (!socket.open) return;
  const details = session.capabilities.has('pending-conn-details');
  const connections = [...session.connections.values()];
  session.send('host-hello-ack', {
    v: 1,
    generation: session.generation,
    controlResumeSecret: session.resumeSecret,
    leaseExpiresAt: session.leaseExpiresAt,
    activeConnIds: connections.filter(({ active }) => active).map(({ connId }) => connId),
    pendingConns: connections.filter(({ pending }) => pending).map((connection) => connection.restate(details)),
  });
}

function refuse(core: CellCore, session: ControlSession, reason: CloseReason): void {
  core.metrics.authentications.inc({ outcome: reason });
  session.refuse(reason);
}
