import { CLOSE } from '../contract/close-codes.ts';
import { LIMITS } from '../contract/limits.ts';
import { phoneFrames, type RelayHello, relayFrames } from '../contract/phone.ts';
import type { Timer } from './clock.ts';
import { CLIENT_LIMITS } from './limits.ts';
import type { Ports } from './ports.ts';
import { type Message, type RelaySocket, type SocketEnd, webSocketUrl } from './socket.ts';
import { MessageStream } from './stream.ts';

export type AcceptedHello = Extract<RelayHello, { ok: true }>;

export type DialOutcome =
  | { kind: 'hello'; hello: AcceptedHello; stream: MessageStream }
  /** From a director: where the host of this invite is. */
  | { kind: 'moved'; cellUrl: string; assignmentEpoch: number }
  /** No connection. `answered` when the relay itself said no, with one of its codes. */
  | { kind: 'ended'; end: SocketEnd; answered: boolean };

export interface DialTarget {
  /** A cell's origin; a director's only with an invite. */
  origin: string;
  relayHostId: string;
  /** Invite or resume token. */
  credential: string;
}

const RELAY_CODES: ReadonlySet<number> = new Set(Object.values(CLOSE));

/** One dial of `/v1/connect/<host>`, bounded at 12 s up to the hello. Never throws; the signal ends it. */
export function dialPhone(ports: Ports, target: DialTarget, signal: AbortSignal): Promise<DialOutcome> {
  return new Promise((resolve) => {
    let stream: MessageStream | null = null;
    let refusedCode = 0;
    let settled = false;
    const settle = (outcome: DialOutcome) => {
      settled = true;
      limit.cancel();
      signal.removeEventListener('abort', abort);
      resolve(outcome);
    };
    const read = (message: Message) => {
      const frame = typeof message === 'string' ? relayFrames.read(message) : null;
      if (!frame?.ok) {
        socket.terminate();
      } else if (frame.frame.type === 'relay-moved') {
        const { cellUrl, assignmentEpoch } = frame.frame;
        settle({ kind: 'moved', cellUrl, assignmentEpoch });
        socket.close(1000, '');
      } else if (frame.frame.ok) {
        stream = new MessageStream(socket);
        keepAlive(ports, socket, stream, heard);
        settle({ kind: 'hello', hello: frame.frame, stream });
      } else {
        // The close that follows carries the reason in words; it need not come.
        refusedCode = frame.frame.code;
        limit.cancel();
        limit = ports.clock.after(LIMITS.closeDeadlineMs, () => socket.terminate());
      }
    };
    const heard = { at: ports.clock.now() };
    const socket: RelaySocket = ports.openSocket(
      {
        url: webSocketUrl(target.origin, `/v1/connect/${target.relayHostId}`),
        maxMessageBytes: LIMITS.maxFrameBytes,
      },
      {
        opened: () =>
          socket.send(phoneFrames.write('relay-auth', { v: 1, mode: 'connect', credential: target.credential })),
        message(message) {
          heard.at = ports.clock.now();
          if (stream) stream.deliver(message);
          else if (!settled && refusedCode === 0) read(message);
        },
        pong: () => {
          heard.at = ports.clock.now();
        },
        drained: () => stream?.drained(),
        ended(end) {
          stream?.finish(end);
          if (settled) return;
          const code = refusedCode || end.code;
          settle({ kind: 'ended', end: { ...end, code }, answered: RELAY_CODES.has(code) });
        },
      },
    );
    const abort = () => socket.terminate();
    let limit: Timer = ports.clock.after(CLIENT_LIMITS.phoneDialMs, () => socket.terminate());
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
  });
}

/** Where there are pings, a silent path is found out; in browsers only the app's own traffic can tell. */
function keepAlive(ports: Ports, socket: RelaySocket, stream: MessageStream, heard: { at: number }): void {
  let timer: Timer;
  const arm = () => {
    timer = ports.clock.after(CLIENT_LIMITS.phonePingMs, () => {
      // Nothing is heard on a socket that this side does not read.
      if (stream.paused) heard.at = ports.clock.now();
      if (ports.clock.now() - heard.at > LIMITS.controlSilenceTimeoutMs) socket.terminate();
      else if (socket.ping()) arm();
    });
  };
  arm();
  void stream.closed.then(() => timer.cancel());
}
