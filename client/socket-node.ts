import WebSocket from 'ws';
import { LIMITS } from '../contract/limits.ts';
import { readRetryAfter } from './backoff.ts';
import type { Message, OpenSocket, SocketEnd } from './socket.ts';

/** `ws`: it can pause reading, ping, send headers and tell why an upgrade was refused. */
export const openNodeSocket: OpenSocket = (target, handlers) => {
  const ws = new WebSocket(target.url, {
    headers: target.headers ?? {},
    maxPayload: target.maxMessageBytes,
    perMessageDeflate: false,
    followRedirects: false,
  });
  let refusal: Pick<SocketEnd, 'status' | 'retryAfterMs'> = {};
  let failure = '';
  let closeTimer: NodeJS.Timeout | undefined;

  ws.on('open', () => handlers.opened());
  ws.on('message', (data, isBinary) => handlers.message(readMessage(data as Buffer, isBinary)));
  ws.on('pong', () => handlers.pong?.());
  ws.on('unexpected-response', (_request, response) => {
    const retryAfterMs = readRetryAfter(response.headers['retry-after'], Date.now());
    refusal = { status: response.statusCode ?? 0, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
    ws.terminate();
  });
  ws.on('error', (error) => {
    failure = error.message;
  });
  ws.on('close', (code, reason) => {
    clearTimeout(closeTimer);
    handlers.ended({ code, reason: reason.toString() || failure, ...refusal });
  });

  return {
    send(message) {
      if (ws.readyState !== WebSocket.OPEN) return false;
      // A broken connection calls back too, and has emptied its buffer by forgetting it.
      ws.send(message, (error) => {
        if (!error) handlers.drained?.();
      });
      return true;
    },
    nextTurn: (run) => void setImmediate(run),
    buffered: () => ws.bufferedAmount,
    pauseReading() {
      ws.pause();
      return ws.isPaused;
    },
    resumeReading: () => ws.resume(),
    ping() {
      if (ws.readyState === WebSocket.OPEN) ws.ping();
      return true;
    },
    close(code, reason) {
      // A paused socket would never see the peer's answer to the close frame.
      ws.resume();
      ws.close(code, reason);
      closeTimer ??= setTimeout(() => ws.terminate(), LIMITS.closeDeadlineMs);
    },
    terminate: () => ws.terminate(),
  };
};

function readMessage(data: Buffer, isBinary: boolean): Message {
  return isBinary ? data : data.toString();
}
