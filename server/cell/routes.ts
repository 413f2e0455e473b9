import { readCapabilities, relayHostId as relayHostIdSchema } from '../../contract/index.ts';
import { route, sourceAddress } from '../http.ts';
import type { PreAuth } from '../pre-auth.ts';
import {
  pathTail,
  type SocketHandlers,
  socketRoute,
  type UpgradeDecision,
  type UpgradeRequest,
} from '../socket-route.ts';
import { bearerToken, type HostIdentity, KeysUnavailableError } from '../tokens.ts';
import type { App } from '../uws.ts';
import type { CellCore } from './cell-core.ts';
import type { ConnectionEffects } from './connection.ts';
import { ControlSession, type SessionEffects } from './control-session.ts';
import { beginHandshake } from './handshake.ts';
import { isExpected } from './hello-ground.ts';
import { receiveHostData } from './host-data.ts';
import { PeerSocket } from './peer-socket.ts';
import { receivePhone } from './phone-accept.ts';
import type { Units } from './units.ts';
import { isOverloaded, refusalReply, type UpgradeRefusal } from './upgrade-rules.ts';

export interface Doors {
  core: CellCore;
  units: Units;
  preAuth: PreAuth;
  /** Every socket of this cell, until its end. */
  sockets: Set<PeerSocket>;
  sessionEffects: SessionEffects;
  connectionEffects: ConnectionEffects;
}

const CONTROL_PATH = '/v1/host/control';
const DATA_PREFIX = '/v1/host/data/';
const CONNECT_PREFIX = '/v1/connect/';

/** What belongs to a socket between its upgrade and the first thing it says. */
interface Arrival {
  socket: PeerSocket;
  /** Null once it has run: what it was made of would otherwise live as long as the socket. */
  begin: (() => void) | null;
}

type Decision = UpgradeDecision<Arrival>;

export function registerSocketRoutes(app: App, doors: Doors): void {
  socketRoute(app, CONTROL_PATH, 'control', { ...arrivalHandlers(), upgrade: (r) => admitControl(doors, r) });
  socketRoute(app, `${DATA_PREFIX}*`, 'data', { ...arrivalHandlers(), upgrade: (r) => admitHostData(doors, r) });
  socketRoute(app, `${CONNECT_PREFIX}*`, 'connect', {
    ...arrivalHandlers(),
    upgrade: (r) => admitPhone(doors, r),
  });
}

/** Placement is the directors' business; a client that asks a cell has the wrong address. */
export function registerDirectorOnly(app: App): void {
  for (const path of ['/v1/assign', '/v1/resolve', '/v1/regions']) {
    route(app, 'any', path, () => ({ status: 404, json: { error: 'director_only' } }));
  }
}

function admitControl(doors: Doors, request: UpgradeRequest): Decision | Promise<Decision> {
  if (request.query !== '') return refused(doors, 'control', 'query-string');
  const token = bearerToken(request.header('authorization'));
  if (token === null) return refused(doors, 'control', 'invalid-token');
  return verifyThenAdmit(doors, request, token);
}

async function verifyThenAdmit(doors: Doors, request: UpgradeRequest, token: string): Promise<Decision> {
  const { core } = doors;
  let identity: HostIdentity | null;
  try {
    identity = await core.tokens.verify(token);
  } catch (error) {
    if (!(error instanceof KeysUnavailableError)) throw error;
    core.log.warn({ event: 'orca_relay_token_unverified', error });
    return refused(doors, 'control', 'keys-unavailable');
  }
  if (identity === null) return refused(doors, 'control', 'invalid-token');
  if (!isOpen(doors)) return refused(doors, 'control', 'not-heard');
  const live = core.seats.of(identity) !== undefined;
  if (!isExpected(core, identity) && isOverloaded(core.db)) {
    core.metrics.hellosShed.inc();
    return refused(doors, 'control', 'database-busy');
  }
  const booked = core.book.epochOf(identity) > 0;
  const unit = core.book.lendUnit(identity) ?? doors.units.control(live || booked);
  if (typeof unit === 'string') return refused(doors, 'control', unit);
  const socket = arrive(doors, request);
  socket.onEnd(unit.release);
  const capabilities = readCapabilities(request.header('x-orca-host-capabilities') ?? '');
  const session = new ControlSession(core, doors.sessionEffects, {
    identity,
    socket,
    capabilities,
    watermark: doors.units.inclusionWatermark,
  });
  const lease = request.header('x-orca-relay-assignment-lease');
  return accepted(socket, () => {
    unit.opened();
    beginHandshake(core, session, socket, lease);
  });
}

function admitPhone(doors: Doors, request: UpgradeRequest): Decision {
  if (request.query !== '') return refused(doors, 'connect', 'query-string');
  const relayHostId = pathTail(request.path, CONNECT_PREFIX);
  if (relayHostId === null || !relayHostIdSchema.safeParse(relayHostId).success) {
    return refused(doors, 'connect', 'bad-host-id');
  }
  if (!isOpen(doors)) return refused(doors, 'connect', 'not-heard');
  const units = doors.units.phone();
  if (typeof units === 'string') return refused(doors, 'connect', units);
  const slot = doors.preAuth.admit(sourceOf(request));
  if (slot === null) {
    units.release();
    return refused(doors, 'connect', 'pre-auth-budget');
  }
  const socket = arrive(doors, request);
  socket.onEnd(() => {
    slot.release();
    units.release();
  });
  return accepted(socket, () => {
    units.opened();
    receivePhone(doors, { socket, relayHostId, units, slot });
  });
}

function admitHostData(doors: Doors, request: UpgradeRequest): Decision {
  if (request.query !== '') return refused(doors, 'data', 'query-string');
  const connId = pathTail(request.path, DATA_PREFIX);
  if (connId === null) return refused(doors, 'data', 'bad-connection-id');
  if (!isOpen(doors)) return refused(doors, 'data', 'not-heard');
  const unit = doors.units.hostData(connId);
  if (typeof unit === 'string') return refused(doors, 'data', unit);
  const slot = doors.preAuth.admit(sourceOf(request));
  if (slot === null) {
    unit.release();
    return refused(doors, 'data', 'pre-auth-budget');
  }
  const socket = arrive(doors, request);
  socket.onEnd(() => {
    slot.release();
    unit.release();
  });
  return accepted(socket, () => {
    unit.opened();
    receiveHostData(doors.core, socket, connId, { identified: slot.release, accepted: unit.keep });
  });
}

/** A process that Postgres has not heard yet serves nobody; one that is closing says so by a close code. */
function isOpen({ core }: Doors): boolean {
  return core.closing() || core.admitted();
}

function sourceOf(request: UpgradeRequest): string {
  return sourceAddress(request.header('x-forwarded-for'), request.remoteAddress);
}

function arrive(doors: Doors, request: UpgradeRequest): PeerSocket {
  const socket = new PeerSocket(sourceOf(request));
  doors.sockets.add(socket);
  socket.onEnd(() => doors.sockets.delete(socket));
  return socket;
}

function accepted(socket: PeerSocket, begin: () => void): Decision {
  return { accept: { socket, begin } };
}

function refused(doors: Doors, path: 'control' | 'connect' | 'data', reason: UpgradeRefusal): Decision {
  doors.core.metrics.upgradesRefused.inc({ path, reason });
  return { refuse: refusalReply(reason) };
}

function arrivalHandlers(): Omit<SocketHandlers<Arrival>, 'upgrade'> {
  return {
    // 1006: it was gone before it was there.
    abandoned: ({ socket }) => socket.ended(1006, ''),
    open(ws, arrival) {
      const { socket, begin } = arrival;
      arrival.begin = null;
      socket.opened(ws as never);
      begin?.();
    },
    message: (_ws, { socket }, data, isBinary) => socket.received(data, isBinary),
    drain: (_ws, { socket }) => socket.drained(),
    close: (_ws, { socket }, code, reason) => socket.ended(code, reason),
  };
}
