import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { Fleet, type FleetDatabase, type Seated } from './support/fleet.ts';
import { newId } from './support/identity.ts';
import { installDevice } from './support/parts.ts';
import { RawPhone } from './support/raw-phone.ts';
import { scrape, total } from './support/scrape.ts';
import { proxyBefore, type TcpProxy } from './support/tcp-proxy.ts';
import { until } from './support/wait.ts';

let database: FleetDatabase;
let proxy: TcpProxy;
let fleet: Fleet;
let seated: Seated;
let device: Awaited<ReturnType<typeof installDevice>>;
beforeAll(async () => {
  database = await freshDatabase();
  proxy = await proxyBefore(database.url);
  const cells = [{ limit: { hardCap: 600, unobservedBound: 60 } }];
  fleet = await Fleet.start({ database, cells, rewriteUrl: (url) => proxy.through(url) });
  seated = await fleet.seat();
  device = await installDevice(seated.host);
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});

const knock = (credential: string) => RawPhone.knock(fleet.cell().origin, seated.identity.relayHostId, credential);

/** Only the control is left, and no invite is held for a phone that is gone. */
async function nothingLeft(): Promise<void> {
  await until(
    'only the control’s unit',
    () => fleet.units(fleet.cell()),
    (units) => units === 1,
  );
  await until(
    'no invite reserved',
    () => database.query(`select 1 from relay.invite i where relay.invite_state(i, relay.now()) = 'reserved'`),
    (rows) => rows.length === 0,
  );
}
afterEach(async () => {
  expect(seated.host.peer.isOpen).toBe(true);
  expect(fleet.problems()).toEqual([]);
  expect(total(await scrape(fleet.cell().origin), 'orca_relay_cell_unit_faults')).toBe(0);
});

describe('S25 a phone that hangs up on the way in', () => {
  test('before its first frame', async () => {
    const phone = await RawPhone.upgrade(fleet.cell().origin, seated.identity.relayHostId);
    phone.peer.drop();
    await nothingLeft();
    expect(seated.host.waiting('conn-open')).toEqual([]);
  });

  test.each(['invite', 'resume'])('while the database looks at its %s: no conn-open, nothing held', async (kind) => {
    const { host } = seated;
    const credential = kind === 'invite' ? (await host.createInvite(newId('device'))).inviteToken : device.resumeToken;
    proxy.stall();
    const phone = await knock(credential);
    await until(
      'the call under way',
      () => fleet.units(fleet.cell()),
      (units) => units === 3,
    );
    phone.peer.drop();
    await phone.peer.closed;
    await new Promise((resolve) => setTimeout(resolve, 100));
    proxy.restore();
    await nothingLeft();
    expect(host.waiting('conn-open')).toEqual([]);
  });

  test('after conn-open, before the host attaches: the ticket is dead', async () => {
    const phone = await knock(device.resumeToken);
    const open = await seated.host.connOpen();
    phone.peer.drop();
    await nothingLeft();
    const late = await seated.host.attach(open);
    expect((await late.close()).code).toBe(4401);
    await nothingLeft();
  });

  test('after the host’s data upgrade, before its first frame', async () => {
    const phone = await knock(device.resumeToken);
    const open = await seated.host.connOpen();
    const data = await seated.host.attach(open, { connTicket: undefined });
    phone.peer.drop();
    expect((await data.close()).code).toBe(4401);
    await nothingLeft();
  });

  test('at any instant, forty times over', async () => {
    const { host } = seated;
    for (let round = 0; round < 40; round += 1) {
      const credential = round % 2 === 0 ? device.resumeToken : (await host.createInvite(newId('device'))).inviteToken;
      if (round % 20 === 19) await fleet.advance(61_000, 10_000);
      const phone = await knock(credential);
      const attach = host.connOpen(150).then(
        (open) => host.attach(open).catch(() => null),
        () => null,
      );
      await new Promise((resolve) => setTimeout(resolve, (round * 7) % 23));
      phone.peer.drop();
      await attach;
    }
    await fleet.advance(3_000, 1_000);
    await nothingLeft();
    const status = { type: 'device-credential-install-status', v: 1, reqId: 'probe', relayDeviceId: 'd' };
    expect(await host.request(status)).toMatchObject({ state: 'not-found' });
  });
});
