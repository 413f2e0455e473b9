import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { book } from './support/booking.ts';
import { Fleet, type FleetDatabase, type Seated } from './support/fleet.ts';
import { type HostIdentity, newId, newIdentity } from './support/identity.ts';
import { connectPair, type Installed, installDevice } from './support/parts.ts';
import { UpgradeRefused } from './support/peer.ts';
import { RawHost } from './support/raw-host.ts';
import { RawPhone } from './support/raw-phone.ts';
import { toDb, toReserve } from './support/reserve-mode.ts';
import { scrape, total } from './support/scrape.ts';
import { readFull } from './support/seat-feed.ts';
import { proxyBefore, type TcpProxy } from './support/tcp-proxy.ts';
import { until } from './support/wait.ts';

let database: FleetDatabase;
let proxy: TcpProxy;
let fleet: Fleet;
/** Seated by the database, before its cell turned to reserve. */
let veteran: Seated;
let device: Installed;
beforeAll(async () => {
  database = await freshDatabase();
  proxy = await proxyBefore(database.url);
  const limit = { hardCap: 600, unobservedBound: 60 };
  const cells = [{ limit, env: { ORCA_RELAY_DATABASE_POOL_MAX: '2' } }];
  fleet = await Fleet.start({ database, cells, rewriteUrl: (url) => proxy.through(url) });
  veteran = await fleet.seat();
  device = await installDevice(veteran.host);
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
afterEach(() => proxy.restore());

const cell = () => fleet.cell();
/** As a host that was granted this epoch here. */
const dial = (identity: HostIdentity, epoch: number) =>
  fleet.dial(identity, { cellUrl: cell().origin, assignmentEpoch: epoch, lease: '' });

async function refusal(identity: HostIdentity, epoch: number): Promise<unknown> {
  const options = { origin: cell().origin, epoch, token: await fleet.token(identity) };
  const host = await RawHost.upgrade(identity, options).catch((error) => error);
  if (host instanceof UpgradeRefused) return host;
  host.hello(options);
  return host.peer.close();
}

/** Booked, connected, and written down by the director that booked it. */
async function seatedBy(epoch: number): Promise<{ identity: HostIdentity; host: RawHost }> {
  const identity = newIdentity();
  expect(await book(fleet, cell(), identity, epoch)).toEqual({ outcome: 'ok' });
  const host = await dial(identity, epoch);
  await record(identity, epoch);
  return { identity, host };
}

async function record({ userId, relayHostId }: HostIdentity, epoch: number): Promise<void> {
  const rows = JSON.stringify([{ user_id: userId, relay_host_id: relayHostId, cell_id: 'c1', epoch }]);
  const recorded = await database.query('select result from relay_v1.record_seats($1)', [rows]);
  expect(recorded).toEqual([{ result: 'recorded' }]);
}

/** Phones that all want something of a database that does not answer: more of them than the pool has connections. */
async function wedge(): Promise<() => Promise<void>> {
  proxy.stall();
  const crowd: RawPhone[] = [];
  let over = false;
  const knock = async () => {
    while (!over) {
      crowd.push(await RawPhone.knock(cell().origin, veteran.identity.relayHostId, device.resumeToken));
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  };
  const knocking = knock();
  const stranger = newIdentity();
  await until(
    'strangers shed',
    () => refusal(stranger, 1),
    (seen) => seen instanceof UpgradeRefused,
  );
  return async () => {
    over = true;
    await knocking;
    proxy.restore();
    for (const phone of crowd) phone.peer.drop();
  };
}

describe('a reserve cell whose database is wedged (88)', () => {
  test('88 booked hosts connect, at their epoch only; leavers are let back in; strangers are shed; nobody is dropped', async () => {
    const pair = await connectPair(veteran.host, device.resumeToken);
    const leaver = await seatedBy(4);
    const sent = await seatedBy(8);
    leaver.host.drop();
    await fleet.advance(31_000);
    const { recentlyLeft } = await readFull(fleet, cell());
    expect(recentlyLeft).toMatchObject([{ relayHostId: leaver.identity.relayHostId, epoch: 4, closeCode: 1006 }]);
    const booked = newIdentity();
    expect(await book(fleet, cell(), booked, 7)).toEqual({ outcome: 'ok' });

    const recover = await wedge();
    try {
      expect(await refusal(newIdentity(), 1)).toMatchObject({ status: 503, headers: { 'retry-after': '2' } });
      for (const epoch of [6, 8]) {
        expect(await refusal(booked, epoch)).toMatchObject({ code: 4429, reason: 'relay temporarily unavailable' });
      }
      expect((await dial(booked, 7)).ack?.generation).toBe(1);
      for (const epoch of [3, 5]) expect(await refusal(leaver.identity, epoch)).toMatchObject({ code: 4429 });
      expect((await dial(leaver.identity, 4)).ack?.generation).toBe(2);

      // Seated hosts, their phones and their rebinds know nothing of it.
      const grant = { cellUrl: cell().origin, assignmentEpoch: 8, lease: '' };
      const rebound = await fleet.dial(sent.identity, grant, { previous: sent.host.previous });
      expect(rebound.ack?.generation).toBe(1);
      pair.phone.peer.send('still there?');
      expect((await pair.data.next()).data.toString()).toBe('still there?');
      expect(veteran.host.peer.isOpen).toBe(true);
    } finally {
      await recover();
    }
    await record(booked, 7);
    pair.phone.peer.hangUp();
    expect(total(await scrape(cell().origin), 'orca_relay_cell_unit_faults')).toBe(0);
  });

  test('88 what needs the database says so: new phones 4429, commands relay_temporarily_unavailable', async () => {
    const { host } = await seatedBy(3);
    const recover = await wedge();
    try {
      const phone = await RawPhone.knock(cell().origin, veteran.identity.relayHostId, device.resumeToken);
      expect(await phone.refused()).toMatchObject({ code: 4429 });
      const reply = await host.request({
        type: 'invite-create',
        reqId: newId('invite'),
        relayDeviceId: newId('device'),
      });
      expect(reply).toMatchObject({ type: 'control-error', code: 'relay_temporarily_unavailable' });
      expect(host.peer.isOpen).toBe(true);
    } finally {
      await recover();
    }
    await until(
      'an invite once the database answers',
      () => host.request({ type: 'invite-create', reqId: newId('invite'), relayDeviceId: newId('device') }),
      ({ type }) => type === 'invite-created',
    );
  });

  test('88 a stranger is let in by the database once it answers, and a wrong epoch is 4409', async () => {
    expect(await refusal(newIdentity(), 1)).toMatchObject({ code: 4409, reason: 'wrong assignment epoch' });
  });

  test('88 leaving reserve mode voids the booking', async () => {
    const identity = newIdentity();
    expect(await book(fleet, cell(), identity, 2)).toEqual({ outcome: 'ok' });
    await toDb(fleet, 'c1');
    expect((await readFull(fleet, cell())).counts.bookings).toBe(0);
    expect(await book(fleet, cell(), identity, 2)).toEqual({ outcome: 'off' });
    expect(await refusal(identity, 2)).toMatchObject({ code: 4409, reason: 'wrong assignment epoch' });
    expect(fleet.problems()).toEqual([]);
  });
});
