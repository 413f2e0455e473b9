import { PeerSocket } from '../../server/cell/peer-socket.ts';
import { Splicer } from '../../server/cell/splicer.ts';
import { systemClock } from '../../server/clock.ts';
import { createMetrics } from '../../server/metrics.ts';
import { pathTail, socketRoute } from '../../server/socket-route.ts';
import { createApp, listen, selfTestPause } from '../../server/uws.ts';
import { serve } from '../support/server-process.ts';

/** The relay's splice, wired as a cell wires it, without admission: `/client/<name>` is joined to `/host/<name>`. */
const splicer = new Splicer({ clock: systemClock, metrics: createMetrics(), pausing: await selfTestPause() });
const waiting = new Map<string, PeerSocket>();
const app = createApp();
for (const [prefix, kind] of [
  ['/client/', 'connect'],
  ['/host/', 'data'],
] as const) {
  socketRoute<{ peer: PeerSocket; begin: () => void }>(app, `${prefix}*`, kind, {
    upgrade(request) {
      const name = pathTail(request.path, prefix) ?? '';
      const peer = new PeerSocket(request.remoteAddress);
      return { accept: { peer, begin: () => begin(name, kind, peer) } };
    },
    open(ws, { peer, begin }) {
      peer.opened(ws as never);
      begin();
    },
    message: (_ws, { peer }, data, isBinary) => peer.received(data, isBinary),
    drain: (_ws, { peer }) => peer.drained(),
    close: (_ws, { peer }, code, reason) => peer.ended(code, reason),
  });
}

function begin(name: string, kind: 'connect' | 'data', peer: PeerSocket): void {
  const other = waiting.get(name);
  waiting.delete(name);
  if (other === undefined) waiting.set(name, peer);
  else if (kind === 'data') splicer.join(other, peer, () => {});
  else splicer.join(peer, other, () => {});
}

const listener = await listen(app, '127.0.0.1', 0);
serve(listener.port, () => splicer.queuedBytes);
