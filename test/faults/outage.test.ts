import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, type FleetDatabase, type Node, type Seated } from '../acceptance/support/fleet.ts';
import { newId, newIdentity } from '../acceptance/support/identity.ts';
import { askAssign, askResolve, connectPair, type Grant, installDevice } from '../acceptance/support/parts.ts';
import { UpgradeRefused } from '../acceptance/support/peer.ts';
import { RawHost } from '../acceptance/support/raw-host.ts';
import { RawPhone } from '../acceptance/support/raw-phone.ts';
import { proxyBefore, type TcpProxy } from '../acceptance/support/tcp-proxy.ts';
import { until } from '../acceptance/support/wait.ts';
import { freshDatabase } from '../support/database.ts';

let database: FleetDatabase;
/** Before the database, for everybody. */
let proxy: TcpProxy;
/** Before that, for the second cell alone. */
let late: TcpProxy;
let fleet: Fleet;
beforeAll(async () => {
  database = await freshDatabase();
  proxy = await proxyBefore(database.url);
  late = await proxyBefore(proxy.through(database.url));
  const cells = [{}, { env: { DATABASE_URL: late.through(database.urlFor('relay_cell')) } }];
  fleet = await Fleet.start({ database, cells, rewriteUrl: (url) => proxy.through(url) });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await late?.stop();
    await proxy?.stop();
    await database?.drop();
  }
});
afterEach(() => {
  proxy.restore();
  late.restore();
});

const movesOf = ({ identity }: Seated) =>
  database.query(`select * from relay.change where kind = 'moved' and user_id = $1`, [identity.userId]);

async function liveCells(): Promise<unknown[]> {
  const text = `select cell_id from relay.cell_runtime where ready and heard_at > relay.now() - interval '45 s' order by 1`;
  return (await database.query(text)).map((row) => row.cell_id);
}

/** Moves a host to the other cell, as a roll does: the old one keeps it for a grace. */
async function moveAway(seated: Seated, forced = false): Promise<Grant> {
  const other = fleet.cells.find(({ origin }) => origin !== seated.grant.cellUrl);
  const grant = await fleet.move(seated, other as Node, forced);
  expect(grant).toMatchObject({ cellUrl: other?.origin, assignmentEpoch: 2 });
  return grant;
}

test('V5 after 60 s without the database no host of a live cell is moved, whoever asks, whoever is heard first', async () => {
  const everyone = await Promise.all(Array.from({ length: 10 }, () => fleet.seat()));
  const devices = await Promise.all(everyone.map(({ host }) => installDevice(host)));
  const [first, second] = fleet.cells as [Node, Node];
  expect(new Set(everyone.map(({ grant }) => grant.cellUrl))).toEqual(new Set([first.origin, second.origin]));
  /** How many hosts are granted now; the rest must be told to come back. */
  const askAll = async () => {
    let granted = 0;
    for (const [index, { identity }] of everyone.entries()) {
      const asked = await askAssign(fleet.director.origin, await fleet.token(identity), identity, { reconnect: true });
      const resumeToken = String(devices[index]?.resumeToken);
      const resolved = await askResolve(fleet.director.origin, identity.relayHostId, resumeToken);
      expect([200, 503]).toContain(asked.status);
      expect([200, 503]).toContain(resolved.status);
      if (asked.status === 200) granted += 1;
    }
    return granted;
  };

  proxy.refuse();
  late.refuse();
  await fleet.advance(60_000);
  proxy.restore();
  await until(
    'the first cell heard',
    async () => {
      await fleet.advance(1_000);
      return liveCells();
    },
    (live) => live.includes(first.id),
  );
  expect(await liveCells()).toEqual([first.id]);
  expect(await askAll()).toBeLessThan(everyone.length);
  late.restore();
  await until(
    'everybody granted',
    async () => {
      await fleet.advance(6_000, 3_000);
      return askAll();
    },
    (granted) => granted === everyone.length,
  );
  for (const seated of everyone) {
    expect(seated.host.peer.isOpen).toBe(true);
    expect(await movesOf(seated)).toEqual([]);
  }
});

test('incident 1: after 7 minutes without the database every host still has its socket, and its lease again', async () => {
  const everyone = await Promise.all(
    Array.from({ length: 6 }, async () => {
      const { identity, grant, host } = await fleet.seat();
      const token = await fleet.token(identity, { lifeSeconds: 3_600 });
      return { identity, grant, host: await fleet.dial(identity, grant, { token, previous: host.previous }) };
    }),
  );
  proxy.refuse();
  await fleet.advance(7 * 60_000, 10_000);
  for (const { origin } of [fleet.director, ...fleet.cells]) {
    expect((await fetch(`${origin}/health`)).status).toBe(200);
  }
  proxy.restore();
  await until(
    'all leases alive',
    async () => {
      await fleet.advance(5_000);
      const alive = await database.query(
        `select user_id from relay.lease where state = 'active' and expires_at > relay.now() and user_id = any($1)`,
        [everyone.map(({ identity }) => identity.userId)],
      );
      return alive.length;
    },
    (count) => count === everyone.length,
  );
  for (const seated of everyone) {
    expect(seated.host.peer.isOpen).toBe(true);
    expect(await movesOf(seated)).toEqual([]);
    expect((await seated.host.createInvite(newId('device'))).maxAttempts).toBe(5);
  }
});

describe('a host moved away', () => {
  test('its old cell stops taking its phones, and closes it 4503 when its grace is over', async () => {
    const seated = await fleet.seat();
    const device = await installDevice(seated.host);
    const pair = await connectPair(seated.host, device.resumeToken);
    const grant = await moveAway(seated);
    await until(
      'its phones refused on the old cell',
      async () => {
        const phone = await RawPhone.knock(seated.grant.cellUrl, seated.identity.relayHostId, device.resumeToken);
        return (await phone.refused()).code;
      },
      (code) => code === 4409 || code === 4503,
    );
    pair.phone.peer.send('during the grace');
    expect((await pair.data.next()).data.toString()).toBe('during the grace');

    const moved = await fleet.dial(seated.identity, grant);
    expect((await connectPair(moved, device.resumeToken)).hello.ok).toBe(true);
    await fleet.advance(62_000);
    expect((await seated.host.peer.close()).code).toBe(4503);
    expect((await pair.phone.peer.close()).code).toBe(4503);
    expect(moved.peer.isOpen).toBe(true);
  });

  test('a forced move closes it 4409 at once, its phones too', async () => {
    const seated = await fleet.seat();
    const device = await installDevice(seated.host);
    const pair = await connectPair(seated.host, device.resumeToken);
    const grant = await moveAway(seated, true);
    expect(await seated.host.peer.close()).toMatchObject({ code: 4409 });
    expect((await pair.phone.peer.close()).code).toBe(4409);
    expect((await pair.data.close()).code).toBe(4409);
    const moved = await fleet.dial(seated.identity, grant);
    expect((await connectPair(moved, device.resumeToken)).hello.ok).toBe(true);
  });

  test('incident 17: its phone at the old cell learns in one round trip, and the director names the new one', async () => {
    const seated = await fleet.seat();
    const device = await installDevice(seated.host);
    const grant = await moveAway(seated);
    const moved = await fleet.dial(seated.identity, grant);
    seated.host.drop();
    const phone = await RawPhone.knock(seated.grant.cellUrl, seated.identity.relayHostId, device.resumeToken);
    expect([4409, 4503]).toContain((await phone.refused()).code);
    const resolved = await askResolve(fleet.director.origin, seated.identity.relayHostId, device.resumeToken);
    expect(resolved).toMatchObject({ status: 200, body: { cellUrl: grant.cellUrl, assignmentEpoch: 2 } });
    expect((await connectPair(moved, device.resumeToken)).hello.ok).toBe(true);
  });

  test('a host that comes back to its old cell with the old epoch is 4409', async () => {
    const seated = await fleet.seat();
    await moveAway(seated);
    seated.host.drop();
    await fleet.advance(61_000);
    await expect(fleet.dial(seated.identity, seated.grant)).rejects.toThrow('4409');
  });

  test('incidents 6, 7: with the listeners black-holed the old cell hears of it all the same', async () => {
    const seated = await fleet.seat();
    const device = await installDevice(seated.host);
    expect(proxy.stallListeners()).toBeGreaterThanOrEqual(3);
    await moveAway(seated);
    await oldCellHears(seated, device.resumeToken);
  });

  test('with the listeners killed the old cell hears of it all the same', async () => {
    const seated = await fleet.seat();
    const device = await installDevice(seated.host);
    await database.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen%'`,
    );
    await moveAway(seated);
    await oldCellHears(seated, device.resumeToken);
  });

  async function oldCellHears(seated: Seated, resumeToken: string): Promise<void> {
    await until(
      'drained',
      async () => {
        await fleet.advance(1_000, 1_000);
        return seated.host.waiting('drain').length;
      },
      (count) => count > 0,
    );
    const phone = await RawPhone.knock(seated.grant.cellUrl, seated.identity.relayHostId, resumeToken);
    expect([4409, 4503]).toContain((await phone.refused()).code);
  }
});

test('a pool that everybody waits for sheds new hosts with 503 and Retry-After, but not one that rebinds', async () => {
  const seated = await fleet.seat();
  const device = await installDevice(seated.host);
  proxy.stall();
  const phones = await Promise.all(
    Array.from({ length: 30 }, () =>
      RawPhone.knock(seated.grant.cellUrl, seated.identity.relayHostId, device.resumeToken),
    ),
  );
  const newcomer = newIdentity();
  const dial = { origin: seated.grant.cellUrl, epoch: 1, token: await fleet.token(newcomer) };
  const shed = await until(
    'a new host shed',
    () =>
      RawHost.upgrade(newcomer, dial).then(
        ({ peer }) => peer.drop(),
        (error) => error,
      ),
    (seen) => seen instanceof UpgradeRefused,
  );
  expect(shed).toMatchObject({ status: 503, headers: { 'retry-after': '2' } });
  const rebind = await RawHost.upgrade(seated.identity, { ...dial, token: await fleet.token(seated.identity) });
  expect(rebind.peer.isOpen).toBe(true);
  proxy.restore();
  for (const phone of phones) phone.peer.drop();
  rebind.drop();
  await until(
    'new hosts taken again',
    () =>
      RawHost.upgrade(newcomer, dial).then(
        ({ peer }) => peer.drop(),
        (error) => error,
      ),
    (seen) => seen === undefined,
  );
});

test('with the database black-holed hosts stay, and new work is refused in bounded time (incidents 20, 27)', async () => {
  const seated = await fleet.seat();
  const device = await installDevice(seated.host);
  const newcomer = newIdentity();
  const token = await fleet.token(newcomer);
  proxy.stall();
  const asked = await askAssign(fleet.director.origin, token, newcomer);
  expect(asked.status).toBe(503);
  expect(asked.headers.get('retry-after')).not.toBeNull();
  expect((await fetch(`${fleet.cell().origin}/health`)).status).toBe(200);
  const phone = await RawPhone.knock(seated.grant.cellUrl, seated.identity.relayHostId, device.resumeToken);
  expect((await phone.refused()).code).toBe(4429);
  proxy.restore();
  await until(
    'granted',
    () => askAssign(fleet.director.origin, token, newcomer),
    ({ status }) => status === 200,
  );
  await connectPair(seated.host, device.resumeToken);
  expect((await seated.host.createInvite(newId('device'))).maxAttempts).toBe(5);
});
