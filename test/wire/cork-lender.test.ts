import { once } from 'node:events';
import { expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { openCorkLender } from '../../server/cork-lender.ts';
import { corkLender, socketRoute } from '../../server/socket-route.ts';
import { createApp, listen } from '../../server/uws.ts';
import { Fleet } from '../acceptance/support/fleet.ts';
import { RawHost } from '../acceptance/support/raw-host.ts';

test('a late upgrade of the only peer borrows the cork of the process’s own socket, and stays open', async () => {
  const app = createApp();
  let lenders = 0;
  socketRoute<null>(app, '/late', 'control', {
    async upgrade() {
      await new Promise((resolve) => setImmediate(resolve));
      if (corkLender() !== undefined) lenders += 1;
      return { accept: null };
    },
    message: (ws, _state, data, isBinary) => ws.send(data, isBinary),
  });
  const listener = await listen(app, '127.0.0.1', 0);
  expect(corkLender()).toBeUndefined();
  const lender = await openCorkLender();
  expect(corkLender()).toBeDefined();
  for (let left = 100; left > 0; left -= 1) {
    const client = new WebSocket(`ws://127.0.0.1:${listener.port}/late`, { perMessageDeflate: false });
    await once(client, 'open');
    client.send('still here');
    const [echo] = await once(client, 'message');
    expect(String(echo)).toBe('still here');
    client.close();
    await once(client, 'close');
  }
  expect(lenders).toBe(100);
  lender?.close();
  expect(corkLender()).toBeUndefined();
  listener.destroy();
});

test('a cell has one from its start to its end', async () => {
  const fleet = await Fleet.start();
  try {
    const lender = corkLender();
    expect(lender).toBeDefined();
    const { identity, grant, host } = await fleet.seat();
    host.peer.hangUp(1000, 'signed-out');
    await host.peer.closed;
    const again = await RawHost.upgrade(identity, {
      origin: grant.cellUrl,
      epoch: 1,
      token: await fleet.token(identity),
    });
    expect(again.peer.isOpen).toBe(true);
    expect(corkLender()).toBe(lender);
    again.peer.drop();
  } finally {
    await fleet.stop();
  }
  expect(corkLender()).toBeUndefined();
});
