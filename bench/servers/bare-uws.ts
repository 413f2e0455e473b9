import { createApp, listen, type Socket, socketSettings } from '../../server/uws.ts';
import { serve } from '../support/server-process.ts';

/**
 * What a splice costs at least: frames of one loop turn for one peer corked together, and nothing else. No bounds, no
 * backpressure, no counting, no orderly close.
 */
interface Peer {
  name: string;
  other: Socket<Peer> | null;
  arena: Uint8Array | null;
  frames: number[];
  used: number;
  dirty: boolean;
}

const ARENA_BYTES = 65_536;
const DIRECT_BYTES = 8_192;
const waiting = new Map<string, Socket<Peer>>();
let dirty: Socket<Peer>[] = [];
let scheduled = false;
const peerOf = (ws: Socket<Peer>): Peer => (ws as unknown as { state: Peer }).state;

function flush(ws: Socket<Peer>, peer: Peer): void {
  const { frames, arena } = peer;
  if (frames.length === 0 || arena === null) return;
  ws.cork(() => {
    for (let i = 0; i < frames.length; i += 3) {
      ws.send(arena.subarray(frames[i], frames[i]! + frames[i + 1]!), frames[i + 2] === 1);
    }
  });
  frames.length = 0;
  peer.used = 0;
}

function flushAll(): void {
  scheduled = false;
  const list = dirty;
  dirty = [];
  for (const ws of list) {
    const peer = peerOf(ws);
    peer.dirty = false;
    flush(ws, peer);
  }
}

const app = createApp();
app.ws<{ state: Peer }>('/:side/:name', {
  ...socketSettings(8 << 20, 32 << 20),
  upgrade(res, req, context) {
    const state: Peer = { name: req.getParameter(1), other: null, arena: null, frames: [], used: 0, dirty: false };
    res.upgrade(
      { state },
      req.getHeader('sec-websocket-key'),
      req.getHeader('sec-websocket-protocol'),
      req.getHeader('sec-websocket-extensions'),
      context,
    );
  },
  open(ws) {
    const peer = peerOf(ws);
    const other = waiting.get(peer.name);
    if (other === undefined) {
      waiting.set(peer.name, ws);
      return;
    }
    waiting.delete(peer.name);
    peer.other = other;
    peerOf(other).other = ws;
  },
  message(ws, data, isBinary) {
    const target = peerOf(ws).other;
    if (target === null) return;
    const peer = peerOf(target);
    const length = data.byteLength;
    if (length > DIRECT_BYTES) {
      flush(target, peer);
      target.send(data, isBinary);
      return;
    }
    if (peer.used + length > ARENA_BYTES) flush(target, peer);
    if (!peer.dirty) {
      peer.dirty = true;
      dirty.push(target);
      if (!scheduled) {
        scheduled = true;
        setImmediate(flushAll);
      }
    }
    peer.arena ??= new Uint8Array(ARENA_BYTES);
    peer.arena.set(new Uint8Array(data), peer.used);
    peer.frames.push(peer.used, length, isBinary ? 1 : 0);
    peer.used += length;
  },
  close(ws) {
    const peer = peerOf(ws);
    peer.frames.length = 0;
    waiting.delete(peer.name);
    if (peer.other !== null) peerOf(peer.other).other = null;
  },
});
const listener = await listen(app, '127.0.0.1', 0);
serve(listener.port);
