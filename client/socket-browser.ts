import { LIMITS } from '../contract/limits.ts';
import type { OpenSocket, SocketEnd } from './socket.ts';

/** There is no event for a buffer that empties, so it is looked at this often while it holds anything. */
const DRAIN_POLL_MS = 20;

/**
 * The global WebSocket of browsers (and of newer Node versions). It cannot pause reading: unread messages are kept up to
 * `CLIENT_LIMITS.receiveLimitBytes`, then the stream closes itself. It cannot ping or send headers, and a refused
 * upgrade looks like any other failure.
 */
export const openBrowserSocket: OpenSocket = (target, handlers) => {
  const ws = new WebSocket(target.url);
  ws.binaryType = 'arraybuffer';
  let poll: ReturnType<typeof setTimeout> | undefined;
  let closeTimer: ReturnType<typeof setTimeout> | undefined;
  let over = false;

  const end = (how: SocketEnd) => {
    if (over) return;
    over = true;
    clearTimeout(poll);
    clearTimeout(closeTimer);
    handlers.ended(how);
  };
  const watchBuffer = () => {
    poll = undefined;
    handlers.drained?.();
    if (!over && ws.bufferedAmount > 0) poll = setTimeout(watchBuffer, DRAIN_POLL_MS);
  };
  const terminate = () => {
    ws.close();
    end({ code: 1006, reason: '' });
  };

  ws.addEventListener('open', () => {
    if (!over) handlers.opened();
  });
  ws.addEventListener('message', (event: { data: unknown }) => {
    if (over) return;
    handlers.message(typeof event.data === 'string' ? event.data : new Uint8Array(event.data as ArrayBuffer));
  });
  ws.addEventListener('close', (event: { code: number; reason: string }) =>
    end({ code: event.code, reason: event.reason }),
  );

  return {
    send(message) {
      if (over || ws.readyState !== WebSocket.OPEN) return false;
      ws.send(message as string);
      poll ??= setTimeout(watchBuffer, DRAIN_POLL_MS);
      return true;
    },
    nextTurn: (run) => void setTimeout(run),
    buffered: () => ws.bufferedAmount,
    pauseReading: () => false,
    resumeReading() {},
    ping: () => false,
    close(code, reason) {
      ws.close(code, reason);
      closeTimer ??= setTimeout(terminate, LIMITS.closeDeadlineMs);
    },
    terminate,
  };
};
