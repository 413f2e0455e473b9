import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { demote } from './support/booking.ts';
import { Fleet, type FleetDatabase, type Node, type Seated } from './support/fleet.ts';
import { type HostIdentity, newIdentity } from './support/identity.ts';
import {
  askAssign,
  askResolve,
  connectPair,
  type Grant,
  type Installed,
  installDevice,
  type Pair,
} from './support/parts.ts';
import { toReserve } from './support/reserve-mode.ts';
import { readFull } from './support/seat-feed.ts';
import { proxyBefore, type TcpProxy } from './support/tcp-proxy.ts';
import { until } from './support/wait.ts';

let database: FleetDatabase;
let proxy: TcpProxy;
let fleet: Fleet;
beforeAll(async () => {
  database = await freshDatabase();
  proxy = await proxyBefore(database.url);
  fleet = await Fleet.start({ database, cells: [{}, {}], rewriteUrl: (url) => proxy.through(url) });
  for (const { id } of fleet.cells) await toReserve(fleet, id, { intakePerSec: 1_000 });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});
afterEach(() => proxy.restore());

interface Member extends Seated {
  cell: Node;
  device: Installed;
  pair: Pair;
}

async function rowOf({ relayHostId }: HostIdentity): Promise<[string, number] | null> {
  const [row] = await database.query('select cell_id, epoch::int from relay.assignment where relay_host_id = $1', [
    relayHostId,
  ]);
  return row === undefined ? null : [String(row.cell_id), Number(row.epoch)];
}

async function member(): Promise<Member> {
  const seated = await fleet.seat();
  const cell = fleet.cellAt(seated.grant.cellUrl);
  await until('its row', () => rowOf(seated.identity), Boolean);
  const device = await installDevice(seated.host);
  return { ...seated, cell, device, pair: await connectPair(seated.host, device.resumeToken) };
}

async function ask(identity: HostIdentity) {
  return askAssign(fleet.director.origin, await fleet.token(identity), identity, { reconnect: true });
}

async function again(identity: HostIdentity): Promise<Grant> {
  const asked = await until(
    'granted',
    () => ask(identity),
    ({ status }) => status === 200,
  );
  return asked.body as unknown as Grant;
}

/** Both ways through a splice. */
async function talks({ phone, data }: Pair): Promise<void> {
  phone.peer.send('ping');
  expect((await data.next()).data.toString()).toBe('ping');
  data.send('pong');
  expect((await phone.peer.next()).data.toString()).toBe('pong');
}

async function seatOn(cell: Node, { relayHostId }: HostIdentity) {
  return (await readFull(fleet, cell)).full.find((seat) => seat.relayHostId === relayHostId);
}

test.each(['stall', 'refuse'] as const)(
  '88 with the database away (%s) reserve mode goes on, and the rows catch up when it is back',
  async (how) => {
    const resting = await member();
    const returning = await member();
    const moving = await member();
    const newcomer = newIdentity();
    proxy[how]();

    // From memory: the same place, and the cell lets the host in without a read. Its phones were never cut.
    returning.host.drop();
    const same = await again(returning.identity);
    expect(same).toMatchObject({ cellUrl: returning.grant.cellUrl, assignmentEpoch: returning.grant.assignmentEpoch });
    const back = await fleet.dial(returning.identity, same, { previous: returning.host.previous });
    expect(back.ack?.activeConnIds).toEqual([returning.pair.open.connId]);

    // Sent away by its cell: booked anew, above what anybody knows.
    const seat = await seatOn(moving.cell, moving.identity);
    expect(await demote(fleet, moving.cell, moving.identity, seat!)).toBe('demoted');
    moving.host.drop();
    const moved = await until(
      'a seat of its own again',
      () => again(moving.identity),
      ({ assignmentEpoch }) => assignmentEpoch > moving.grant.assignmentEpoch,
    );
    const there = await fleet.dial(moving.identity, moved);
    await expect(fleet.dial(moving.identity, moving.grant)).rejects.toThrow();

    // Of a host nobody remembers, only the database could tell; of a phone's credential too.
    const unknown = await ask(newcomer);
    expect(unknown.status).toBe(503);
    expect(Number(unknown.headers.get('retry-after'))).toBeGreaterThan(0);
    const resolved = await askResolve(fleet.director.origin, resting.identity.relayHostId, resting.device.resumeToken);
    expect(resolved.status).toBe(503);
    expect(Number(resolved.headers.get('retry-after'))).toBeGreaterThan(0);

    expect(resting.host.peer.isOpen).toBe(true);
    await talks(resting.pair);
    await talks(returning.pair);
    expect(await rowOf(moving.identity)).toEqual([moving.cell.id, moving.grant.assignmentEpoch]);

    proxy.restore();
    await until(
      'the row of the new seat',
      () => rowOf(moving.identity),
      (row) => row?.[0] === fleet.cellAt(moved.cellUrl).id && row[1] === moved.assignmentEpoch,
    );
    for (const { identity, cell, grant } of [resting, returning]) {
      expect(await rowOf(identity)).toEqual([cell.id, grant.assignmentEpoch]);
    }
    const device = await until('a phone of it finds it', () => installDevice(there).catch(() => null), Boolean);
    const found = await until(
      'resolved',
      () => askResolve(fleet.director.origin, moving.identity.relayHostId, device!.resumeToken),
      ({ status }) => status === 200,
    );
    expect(found.body).toMatchObject({ cellUrl: moved.cellUrl });
    expect((await fleet.dial(newcomer, await again(newcomer))).peer.isOpen).toBe(true);
    for (const { host } of [resting, { host: back }, { host: there }]) expect(host.peer.isOpen).toBe(true);
    expect(fleet.problems()).toEqual([]);
  },
);
