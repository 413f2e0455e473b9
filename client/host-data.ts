import type { ConnectionKind } from '../contract/control.ts';
import { LIMITS } from '../contract/limits.ts';
import { hostDataFrames } from '../contract/phone.ts';
import { between } from './backoff.ts';
import type { Timer } from './clock.ts';
import { CLIENT_LIMITS } from './limits.ts';
import type { Ports } from './ports.ts';
import { type Message, type RelaySocket, webSocketUrl } from './socket.ts';
import { MessageStream } from './stream.ts';

/** A phone that is connected to this host. */
export interface HostConnection {
  readonly connId: string;
  readonly kind: ConnectionKind | undefined;
  readonly relayDeviceId: string | undefined;
  readonly stream: MessageStream;
}

export interface DataTicket {
  cellUrl: string;
  connId: string;
  connTicket: string;
  generation: number;
  attachDeadlineMs: number;
  kind: ConnectionKind | undefined;
  relayDeviceId: string | undefined;
}

export interface DataSocket {
  terminate(): void;
}

/**
 * Dials the host's end of one phone connection. The relay says nothing of its own there, so only the phone's first
 * message shows that the two are joined: `joined` is called with it, and never when the deadline passes without one.
 * A dial that was not accepted has not used the ticket up, so it is repeated until the deadline: a cell lets no more than
 * four sockets of one source wait for their first frame, and eight phones may come at once.
 */
export function openDataSocket(
  ports: Ports,
  ticket: DataTicket,
  handlers: { joined(connection: HostConnection): void; ended(): void },
): DataSocket {
  const { clock, random } = ports;
  let socket: RelaySocket;
  let stream: MessageStream | null = null;
  let state: 'dialling' | 'pausing' | 'open' | 'over' = 'dialling';
  let pause: Timer | null = null;

  const finish = () => {
    state = 'over';
    attach.cancel();
    pause?.cancel();
    handlers.ended();
  };
  const terminate = () => {
    if (state === 'pausing') {
      finish();
      return;
    }
    if (state === 'dialling') state = 'open';
    socket.terminate();
  };
  const deliver = (message: Message) => {
    if (!stream) {
      attach.cancel();
      stream = new MessageStream(socket);
      stream.deliver(message);
      const { connId, kind, relayDeviceId } = ticket;
      handlers.joined({ connId, kind, relayDeviceId, stream });
      return;
    }
    stream.deliver(message);
  };
  const dial = () => {
    state = 'dialling';
    const path = `/v1/host/data/${encodeURIComponent(ticket.connId)}`;
    const target = { url: webSocketUrl(ticket.cellUrl, path), maxMessageBytes: LIMITS.maxFrameBytes };
    socket = ports.openSocket(target, {
      opened() {
        state = 'open';
        const { connTicket, generation } = ticket;
        socket.send(hostDataFrames.write('host-data-auth', { v: 1, connTicket, generation }));
      },
      message: deliver,
      drained: () => stream?.drained(),
      ended(end) {
        if (state === 'dialling') {
          state = 'pausing';
          pause = clock.after(between(CLIENT_LIMITS.redialMinMs, CLIENT_LIMITS.redialMaxMs, random), dial);
          return;
        }
        stream?.finish(end);
        finish();
      },
    });
  };
  const attach = clock.after(ticket.attachDeadlineMs, terminate);
  dial();
  return { terminate };
}
