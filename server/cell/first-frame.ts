import { type CloseReason, LIMITS } from '../../contract/index.ts';
import type { Clock } from '../clock.ts';
import type { PeerSocket } from './peer-socket.ts';

export interface FirstFrame {
  /** Milliseconds from the upgrade. */
  deadlineMs?: number;
  late: CloseReason;
  /** What a binary message is answered with. */
  binary: CloseReason;
  text(text: string): void;
  /** How the peer is refused for either; by default its socket is closed. */
  refuse?(reason: CloseReason): void;
  /** The peer went away before it said anything. */
  gone?(): void;
}

const decoder = new TextDecoder();

/** UTF-8 was checked by the server before the message got here. */
export function decodeText(data: ArrayBuffer): string {
  return decoder.decode(data);
}

/** Waits for the one text message that says who a peer is; whatever else comes first closes it. */
export function awaitFirstFrame(peerTime: Clock, socket: PeerSocket, expected: FirstFrame): void {
  const refuse = (reason: CloseReason) => {
    socket.handle({});
    if (expected.refuse === undefined) socket.close(reason);
    else expected.refuse(reason);
  };
  const timer = peerTime.setTimeout(() => refuse(expected.late), expected.deadlineMs ?? LIMITS.firstFrameDeadlineMs);
  socket.handle({
    message(data, isBinary) {
      peerTime.clearTimeout(timer);
      // Until the next handlers are put in, nothing more is expected.
      socket.handle({});
      if (isBinary) refuse(expected.binary);
      else expected.text(decodeText(data));
    },
    closed() {
      peerTime.clearTimeout(timer);
      expected.gone?.();
    },
  });
}
