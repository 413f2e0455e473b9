import type { ConnectionKind } from '../contract/control.ts';
import { LIMITS } from '../contract/limits.ts';
import { hostDataFrames } from '../contract/phone.ts';
import type { Ports } from './ports.ts';
import { type RelaySocket, webSocketUrl } from './socket.ts';
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
 */
export function openDataSocket(
  ports: Ports,
  ticket: DataTicket,
  handlers: { joined(connection: HostConnection): void; ended(): void },
): DataSocket {
  const { cellUrl, connId, connTicket, generation, kind, relayDeviceId } = ticket;
  let stream: MessageStream | null = null;
  const socket: RelaySocket = ports.openSocket(
    {
      url: webSocketUrl(cellUrl, `/v1/host/data/${encodeURIComponent(connId)}`),
      maxMessageBytes: LIMITS.maxFrameBytes,
    },
    {
      opened: () => socket.send(hostDataFrames.write('host-data-auth', { v: 1, connTicket, generation })),
      message(message) {
        if (!stream) {
          attach.cancel();
          stream = new MessageStream(socket);
          stream.deliver(message);
          handlers.joined({ connId, kind, relayDeviceId, stream });
          return;
        }
        stream.deliver(message);
      },
      drained: () => stream?.drained(),
      ended(end) {
        attach.cancel();
        stream?.finish(end);
        handlers.ended();
      },
    },
  );
  const attach = ports.clock.after(ticket.attachDeadlineMs, () => socket.terminate());
  return socket;
}
