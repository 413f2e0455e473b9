import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { bookingFor, bookSeats, connectTo, dialTo, seatByBooking } from './support/bookings.ts';
import { Fleet, type FleetDatabase } from './support/fleet.ts';
import { newIdentity } from './support/identity.ts';
import { refusal } from './support/peer.ts';
import { RawHost } from './support/raw-host.ts';
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
  fleet = await Fleet.start({
    database,
    directors: 0,
    cells: [{ env: { ORCA_RELAY_DATABASE_POOL_MAX: '2' } }],
    rewriteUrl: (url) => proxy.through(url),
  });
  await toReserve(fleet, 'c1');
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});
afterEach(() => {
  proxy.restore();
  expect(fleet.problems()).toEqual([]);
});

/** Strangers whose hellos wait for a database that is silent, until the cell takes no more of them. */
async function wedge(): Promise<void> {
  proxy.stall();
  const cell = fleet.cell();
  await until(
    'strangers refused',
    async () => {
      const stranger = newIdentity();
      const dial = await dialTo(fleet, cell, stranger, 1);
      const upgraded = RawHost.upgrade(stranger, dial);
      const answer = await refusal(upgraded.then(({ peer }) => peer)).catch(() => null);
      if (answer === null) (await upgraded).hello(dial);
      return answer === null ? null : { status: answer.status, retryAfter: answer.headers['retry-after'] };
    },
    (seen) => seen?.status === 503 && seen.retryAfter === '2',
  );
}

test('88: with the database silent a booked host connects, at its epoch only; a leaver rejoins at its own; nobody is dropped', async () => {
  const cell = fleet.cell();
  const [booked, wrong, leaver, seated, stranger] = [
    newIdentity(),
    newIdentity(),
    newIdentity(),
    newIdentity(),
    newIdentity(),
  ];
  const stays = await seatByBooking(fleet, cell, seated, 5);
  const left = await seatByBooking(fleet, cell, leaver, 4);
  left.peer.hangUp(1000, 'signed-out');
  await until(
    'the leaver gone',
    () => readFull(fleet, cell),
    ({ recentlyLeft }) => recentlyLeft.some(({ relayHostId }) => relayHostId === leaver.relayHostId),
  );
  await wedge();

  expect(await bookSeats(fleet, cell, [bookingFor(booked, 3), bookingFor(wrong, 3)])).toEqual(['ok', 'ok']);
  const host = await connectTo(fleet, cell, booked, 3);
  expect(host.ack?.generation).toBe(1);
  const ahead = await RawHost.upgrade(wrong, await dialTo(fleet, cell, wrong, 4));
  ahead.hello(await dialTo(fleet, cell, wrong, 4));
  expect(await ahead.peer.close()).toMatchObject({ code: 4429, reason: 'relay temporarily unavailable' });
  const right = await connectTo(fleet, cell, wrong, 3);

  const back = await connectTo(fleet, cell, leaver, 4);
  const behind = await RawHost.upgrade(leaver, await dialTo(fleet, cell, leaver, 3));
  behind.hello(await dialTo(fleet, cell, leaver, 3));
  expect(await behind.peer.close()).toMatchObject({ code: 4429 });

  const dial = await dialTo(fleet, cell, stranger, 1);
  expect(await refusal(RawHost.upgrade(stranger, dial).then(({ peer }) => peer))).toMatchObject({ status: 503 });

  const rebound = await connectTo(fleet, cell, seated, 5, { previous: stays.previous });
  expect(rebound.ack?.generation).toBe(stays.ack?.generation);
  expect(await stays.peer.close()).toMatchObject({ code: 4408, reason: 'control rebound' });
  for (const each of [host, right, back, rebound]) expect(each.peer.isOpen).toBe(true);
  proxy.restore();
  for (const each of [host, right, back, rebound]) each.drop();
});

test('88: a booking is worth nothing once its cell has left reserve mode', async () => {
  const cell = fleet.cell();
  const identity = newIdentity();
  expect(await bookSeats(fleet, cell, [bookingFor(identity, 3)])).toEqual(['ok']);
  const [row] = await database.query(`select flags_generation from relay.cell where cell_id = 'c1'`);
  await database.query(`select relay_v1.set_cell_flags('c1', '{"admitMode": "db"}', $1)`, [row?.flags_generation]);
  await until(
    'the cell in db mode',
    () => readFull(fleet, cell),
    ({ admitModeRaw, counts }) => admitModeRaw === 'db' && counts.bookings === 0,
  );
  expect(await bookSeats(fleet, cell, [bookingFor(identity, 3)])).toEqual(['off']);
  const host = await RawHost.upgrade(identity, await dialTo(fleet, cell, identity, 3));
  host.hello(await dialTo(fleet, cell, identity, 3));
  expect(await host.peer.close()).toMatchObject({ code: 4409, reason: 'wrong assignment epoch' });
});
