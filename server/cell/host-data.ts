import { type CloseReason, hostDataFrames } from '../../contract/index.ts';
import { hostDigest } from '../log.ts';
import { secretEquals } from '../tokens.ts';
import type { CellCore } from './cell-core.ts';
import type { Connection } from './connection.ts';
import { awaitFirstFrame } from './first-frame.ts';
import type { PeerSocket } from './peer-socket.ts';
import { phoneHello } from './phone-hello.ts';
import { ABNORMAL, type SpliceTrigger } from './splice-triggers.ts';

/** The first frame of a host's data socket (`wire` 1.5), within 2 s. A wrong ticket leaves the waiting phone as it was. */
export function receiveHostData(
  core: CellCore,
  socket: PeerSocket,
  connId: string,
  hooks: { identified(): void; accepted(): void },
): void {
  const refuse = (reason: CloseReason) => {
    core.metrics.attaches.inc({ outcome: reason });
    socket.close(reason);
  };
  awaitFirstFrame(core.peerTime, socket, {
    late: 'first frame timeout',
    binary: 'first frame must be text',
    refuse,
    gone: () => core.metrics.attaches.inc({ outcome: 'gone' }),
    text: (text) => {
      hooks.identified();
      const read = hostDataFrames.read(text);
      if (!read.ok) {
        refuse('invalid host data auth');
        return;
      }
      const connection = admitted(core, connId, read.frame.connTicket, read.frame.generation);
      if (connection === null) refuse('invalid host data ticket');
      else {
        hooks.accepted();
        attach(core, connection, socket);
      }
    },
  });
}

/** The ticket is good once, for a connection that waits, under the generation it was opened in. */
function admitted(core: CellCore, connId: string, ticket: string, generation: number): Connection | null {
  const connection = core.seats.connection(connId);
  if (connection === undefined || connection.state !== 'attach-pending') return null;
  const { session } = connection;
  if (!session.serving || session.generation !== generation) return null;
  return secretEquals(connection.ticket, ticket) ? connection : null;
}

/** In one turn of the loop: both directions forward before the phone has its hello, so that nothing it sends can be lost. */
function attach(core: CellCore, connection: Connection, data: PeerSocket): void {
  const { phone } = connection;
  connection.attached();
  if (core.closing() || !phone.open || !data.open) {
    core.metrics.attaches.inc({ outcome: 'host retired during attachment' });
    data.close('host retired during attachment');
    connection.end('relay draining');
    return;
  }
  const splice = core.splicer().join(phone, data, (trigger) => {
    if (ABNORMAL[trigger]) reportSpliceEnd(core, connection, trigger);
    connection.spliceEnded();
  });
  if (splice === null) {
    connection.end('peer connection dropped');
    return;
  }
  phone.send(phoneHello(connection.accepted));
  connection.spliced(splice);
  core.metrics.attaches.inc({ outcome: 'spliced' });
  const { openedAt, toldAt } = connection;
  const credential = toldAt - openedAt;
  const attach = core.clock.now() - toldAt;
  core.metrics.acceptStageSeconds.observe({ stage: 'attach' }, attach / 1_000);
  core.metrics.acceptStageSeconds.observe({ stage: 'total' }, (credential + attach) / 1_000);
  core.log.info({
    event: 'orca_relay_client_accept_completed',
    credentialKind: connection.kind,
    stageMs: { credential: Math.round(credential), attach: Math.round(attach) },
    totalMs: Math.round(credential + attach),
  });
}

function reportSpliceEnd(core: CellCore, { session }: Connection, trigger: SpliceTrigger): void {
  const host = hostDigest(session.host.userId, session.host.relayHostId);
  core.log.info({ event: 'orca_relay_splice_closed', trigger, host });
}
