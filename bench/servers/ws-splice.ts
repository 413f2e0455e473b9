import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { serve } from '../support/server-process.ts';

/** The usual library: plain (a write a message), or with the target's socket corked for the rest of the loop turn. */
const corked = process.argv[2] === 'corked';
const waiting = new Map<string, { ws: WebSocket; socket: Socket }>();
const http = createServer();
const server = new WebSocketServer({ server: http, perMessageDeflate: false, maxPayload: 8 << 20 });

server.on('connection', (ws: WebSocket, request: IncomingMessage) => {
  ws.on('error', () => {});
  const name = request.url?.split('/')[2] ?? '';
  const here = { ws, socket: request.socket };
  const there = waiting.get(name);
  if (there === undefined) {
    waiting.set(name, here);
    return;
  }
  waiting.delete(name);
  forward(here.ws, there);
  forward(there.ws, here);
});

function forward(from: WebSocket, to: { ws: WebSocket; socket: Socket }): void {
  let isCorked = false;
  from.on('message', (data: Buffer, binary: boolean) => {
    if (corked && !isCorked) {
      isCorked = true;
      to.socket.cork();
      setImmediate(() => {
        isCorked = false;
        to.socket.uncork();
      });
    }
    to.ws.send(data, { binary });
  });
  from.on('close', () => to.ws.close());
}

http.listen(0, '127.0.0.1', () => serve((http.address() as AddressInfo).port));
