import { CLOSE } from '../../contract/index.ts';
import { hostDigest, type LogEntry } from '../log.ts';
import type { CellCore } from './cell-core.ts';
import type { ConnectionEffects } from './connection.ts';
import type { ControlMessages } from './control-messages.ts';
import type { ControlClose, ControlSession, SessionEffects, SessionEnd } from './control-session.ts';
import type { EndCause } from './control-states.ts';
import { releaseInvite } from './phone-accept.ts';

/** Ends after which the database has no lease of this generation any more, or must keep it for another. */
const KEEPS_NO_LEASE: ReadonlySet<EndCause> = new Set<EndCause>([
  'new-generation',
  'moved',
  'activity-moved',
  'stale-incarnation',
]);
/** Ends that the host was told of beforehand. */
const IN_DUE_TIME: ReadonlySet<ControlClose['cause']> = new Set<ControlClose['cause']>([
  'drained',
  'retired',
  'demoted',
]);
const PRINTABLE_REASON_LENGTH = 80;

/** What the life of a control sets off in the cell around it. */
export function sessionEffects(core: CellCore, messages: ControlMessages): SessionEffects {
  return {
    message: (session, socket, data, isBinary) => messages.receive(session, socket, data, isBinary),
    tick: (session) => core.leases.renewIfDue(session),
    closed(session, close) {
      core.metrics.controlCloses.inc({ code: codeLabel(close.code), cause: close.cause });
      core.log.info(closeEntry(core, session, close));
      if (IN_DUE_TIME.has(close.cause) && session.connections.size > 0) reportForcedClose(core, session, close);
    },
    stepped: (session) => core.seatLog.stateChanged(session),
    ended(session, end) {
      const { cause } = end;
      core.metrics.sessionEnds.inc({ cause });
      leaveLog(core, session, end);
      core.seats.unseat(session);
      const leased = core.leases.holds(session);
      core.leases.forget(session);
      core.drain.noteLeft();
      if (cause === 'signed-out') core.seats.rememberCloseReason(session.host, 'signed-out');
      // Without a lease there is nothing to give up, but the database keeps the last words of every host.
      if (cause === 'signed-out' || (leased && !KEEPS_NO_LEASE.has(cause))) {
        core.leases.release(session.host, session, cause === 'signed-out' ? 'signed-out' : null);
      }
    },
  };
}

export function connectionEffects(core: CellCore): ConnectionEffects {
  return {
    ended(connection) {
      const { accepted, session, connId } = connection;
      session.letGo(connId);
      session.watermark = core.watermark();
      core.seats.removeConnection(connection);
      // An invite that nothing was installed by goes into its cooldown now, rather than when its reservation runs out.
      if (accepted.kind === 'invite' && !connection.consumed) {
        releaseInvite(core, session.host.relayHostId, accepted.tokenHash, connId);
      }
    },
  };
}

/** Not before its socket has closed; a successor's join says the rest. */
function leaveLog(core: CellCore, session: ControlSession, { cause, closeCode, closing }: SessionEnd): void {
  if (cause === 'new-generation') return;
  const leave = () => core.seatLog.left(session, closeCode);
  if (closing === null) leave();
  else closing.onEnd(leave);
}

function closeEntry(core: CellCore, session: ControlSession, close: ControlClose): LogEntry {
  return {
    event: 'orca_relay_host_control_closed',
    host: hostDigest(session.host.userId, session.host.relayHostId),
    generation: session.generation,
    state: session.state,
    ageMs: Math.round(core.clock.now() - session.startedAt),
    appVersion: printable(session.appVersion),
    splices: session.spliceCount,
    pending: session.connections.size - session.spliceCount,
    code: close.code,
    reason: printable(close.reason),
    cause: close.cause,
  };
}

/** The host had its grace, and phones were still connected at its end. */
function reportForcedClose(core: CellCore, session: ControlSession, { cause }: ControlClose): void {
  core.metrics.forcedCloses.inc({ cause });
  core.log.info({
    event: 'orca_relay_host_drain_forced_close',
    host: hostDigest(session.host.userId, session.host.relayHostId),
    reason: cause,
    forcedConnections: session.connections.size,
    splices: session.spliceCount,
    pending: session.connections.size - session.spliceCount,
  });
}

const KNOWN_CODES: ReadonlySet<number> = new Set([1000, 1001, 1005, 1006, ...Object.values(CLOSE)]);

/** A peer may close with any code, and a label takes few. */
function codeLabel(code: number): string {
  return KNOWN_CODES.has(code) ? String(code) : 'other';
}

/** A peer writes what it likes into a close frame. */
function printable(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?').slice(0, PRINTABLE_REASON_LENGTH);
}
