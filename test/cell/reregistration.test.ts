import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { REREGISTRATION_REACTIONS, reregisterBackoffMs, reregisterInFlight } from '../../server/cell/reregistration.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';
import { counted, startCore, type TestCore } from './support/core.ts';
import { addReserveCells, beHeard, pass, quiet, type SeatedHost, seatFromMemory } from './support/reserve-cell.ts';

let database: FreshDatabase;
let proxy: TcpProxy;
let core: TestCore;
let clock: HandClock;
let generation: number;

beforeAll(async () => {
  database = await freshDatabase();
  await addReserveCells(database, ['c1', 'c2']);
  proxy = await startProxy(database.url);
});
afterAll(async () => {
  await proxy.stop();
  await database.drop();
});
beforeEach(async () => {
  clock = new HandClock();
  core = startCore(proxy.through(database.urlFor('relay_cell')), clock);
  generation = 0;
  await beHeard(database, 'c1', core.identity.incarnation);
  core.modes.start();
  to('reserve');
});
afterEach(async () => {
  proxy.open();
  core.modes.stop();
  await quiet(core);
  await core.background.idle();
  await core.close();
});

function to(admitMode: 'db' | 'reserve', flags: Record<string, unknown> = {}): void {
  generation += 1;
  core.modes.follow({ flags_generation: generation, flags: { admitMode, ...flags } });
}
const second = (seconds = 1) => pass(core, clock, seconds, () => core.modes.contact());
const seat = (row?: { cellId: string; epoch: number } | null, epoch?: number) =>
  seatFromMemory(core, database, row, epoch);
const lease = ({ session }: SeatedHost) =>
  database.query('select cell_id, epoch, generation, state from relay.lease where user_id = $1', [session.host.userId]);
const logged = (event: string) => core.lines.filter((line) => line.event === `orca_relay_cell_reregistration_${event}`);
const answers = (outcome: string) => counted(core, 'orca_relay_reserve_reregistrations_total', { outcome });

describe('what a cell makes of each answer', () => {
  it('is to believe a no only from a database that answered', () => {
    expect(REREGISTRATION_REACTIONS).toEqual({
      active: 'leased',
      busy: 'again',
      superseded: 'again',
      unanswered: 'again',
      behind: 'unrecorded',
      no_assignment: 'unrecorded',
      wrong_cell: 'refused',
      wrong_epoch: 'refused',
      stale_cell_incarnation: 'stand-down',
    });
  });

  it.each([
    [1, undefined, 1],
    [2, undefined, 1],
    [4, undefined, 1],
    [16, undefined, 5],
    [16, 16, 14],
    [16, 3, 3],
    [2, 16, 1],
  ])('with a pool of %i and the flag %s is asked for in %i calls at once', (poolMax, flag, calls) => {
    expect(reregisterInFlight(poolMax, flag)).toBe(calls);
  });

  it('comes again after 250 ms, twice as late each time, and after 5 s at most', () => {
    expect([0, 1, 2, 3, 4, 5, 19].map(reregisterBackoffMs)).toEqual([250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
  });
});

describe('back to db', () => {
  it('90: every host admitted from memory gets a lease, and none is closed', async () => {
    const hosts = await Promise.all(Array.from({ length: 120 }, () => seat()));
    expect(core.leases.unleased()).toHaveLength(120);
    to('db');
    expect(core.modes).toMatchObject({ raw: 'db', effective: 'reserve' });
    let most = 0;
    for (let ticks = 0; ticks < 100 && core.modes.effective === 'reserve'; ticks += 1) {
      clock.advance(100);
      most = Math.max(most, core.modes.reregistration.calls);
      await quiet(core);
    }
    expect(core.modes).toMatchObject({ raw: 'db', effective: 'db' });
    expect(most).toBe(Math.max(1, Math.floor(core.db.poolMax / 3)));
    expect(core.leases.unleased()).toEqual([]);
    expect(hosts.flatMap(({ ends }) => ends)).toEqual([]);
    for (const host of hosts.slice(0, 3)) {
      expect(await lease(host)).toMatchObject([{ cell_id: 'c1', epoch: 1, generation: 1, state: 'active' }]);
    }
    expect(await database.query(`select count(*) as n from relay.lease where cell_id = 'c1'`)).toEqual([{ n: 120 }]);
    expect(logged('started')).toMatchObject([{ controls: 120 }]);
    await second();
    expect(logged('finished')).toMatchObject([{ outcome: 'all-leased', leased: 120, gaveUp: 0 }]);
    expect(await answers('active')).toBe(120);
  });

  it('90: a host whose row names another cell is closed 4409 after 20 tries, and its neighbours are not', async () => {
    const moved = await seat({ cellId: 'c2', epoch: 1 });
    const neighbour = await seat();
    to('db');
    await second(60);
    expect(moved.ends).toEqual([]);
    expect(core.modes.effective).toBe('reserve');
    await second(40);
    expect(moved.ends).toEqual(['not-reregistered']);
    expect(moved.socket.closed).toEqual({ code: 4409, reason: 'control could not re-register' });
    expect(await answers('wrong_cell')).toBe(20);
    expect(logged('gave_up')).toMatchObject([{ reason: 'wrong_cell' }]);
    expect(neighbour.ends).toEqual([]);
    await second();
    expect(core.modes.effective).toBe('db');
    expect(logged('finished')).toMatchObject([{ leased: 1, gaveUp: 1 }]);
  });

  it('90: a database that does not answer closes nobody, for as long as it takes', async () => {
    const host = await seat();
    to('db');
    await quiet(core);
    await database.query('delete from relay.lease where user_id = $1', [host.session.host.userId]);
    core.leases.forget(host.session);
    to('reserve');
    proxy.refuse();
    to('db');
    await second(600);
    expect(host.ends).toEqual([]);
    expect(await answers('unanswered')).toBeGreaterThan(20);
    expect(logged('stalled').length).toBeGreaterThanOrEqual(9);
    expect(logged('stalled').length).toBeLessThanOrEqual(11);
    proxy.open();
    await second(6);
    expect(await lease(host)).toHaveLength(1);
    expect(core.modes.effective).toBe('db');
  });

  it('a host whose row another transaction holds is passed over, and waits for nobody', async () => {
    const [host, neighbour] = [await seat(), await seat()];
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    await holder.query('begin');
    await holder.query('select from relay.assignment where user_id = $1 for update', [host.session.host.userId]);
    to('db');
    await second(120);
    expect(core.leases.unleased()).toEqual([host.session]);
    expect(await lease(neighbour)).toHaveLength(1);
    expect(await answers('busy')).toBeGreaterThan(20);
    await holder.query('commit');
    await holder.end();
    await second(6);
    expect(host.ends).toEqual([]);
    expect(core.leases.unleased()).toEqual([]);
  });

  it.each([
    ['behind', { cellId: 'c2', epoch: 1 }],
    ['no_assignment', null],
  ])(
    'a host that the ledger has not recorded (%s) stays while no director is heard that could',
    async (outcome, row) => {
      await pass(core, clock, 119);
      const host = await seat(row, 2);
      to('db');
      await pass(core, clock, 300);
      expect(core.modes.trip.silent).toBe(true);
      expect(await answers(outcome)).toBeGreaterThan(20);
      expect(host.ends).toEqual([]);
      await second(110);
      expect(host.ends).toEqual(['not-reregistered']);
    },
  );

  it('a host that left while its lease was being taken gives it up again', async () => {
    const host = await seat();
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    await holder.query('select pg_advisory_lock(90)');
    const busy = Array.from({ length: core.db.poolMax }, () => core.db.query('select pg_advisory_lock_shared(90)'));
    to('db');
    expect(core.modes.reregistration.calls).toBe(1);
    core.seats.rememberCloseReason(host.session.host, 'signed-out');
    host.session.end('signed-out');
    await holder.end();
    await Promise.all(busy);
    await quiet(core);
    expect(await answers('active')).toBe(1);
    await core.background.idle();
    expect(await lease(host)).toEqual([]);
    expect(
      await database.query('select last_close_reason as said from relay.assignment where user_id = $1', [
        host.session.host.userId,
      ]),
    ).toEqual([{ said: 'signed-out' }]);
    expect(await counted(core, 'orca_relay_lease_releases_total', { outcome: 'done' })).toBe(1);
  });

  it('a newer control of the host keeps the lease that an older one was to get', async () => {
    const host = await seat();
    const newer = core.seats.nextGeneration(host.session.host);
    expect(await core.leases.activate(host.session.host, { epoch: 1, generation: newer, watermark: 2 })).toBe('active');
    to('db');
    await quiet(core);
    expect(await answers('superseded')).toBe(1);
    expect(await lease(host)).toMatchObject([{ generation: newer }]);
  });

  it('registers the target of an open migration', async () => {
    const host = await seat();
    await database.query(
      `insert into relay.migration (user_id, relay_host_id, epoch, source_cell, target_cell, opened_at, expires_at)
       values ($1, $2, 1, 'c2', 'c1', relay.now(), relay.now() + interval '15 min')`,
      [host.session.host.userId, host.session.host.relayHostId],
    );
    to('db');
    await quiet(core);
    expect(
      await database.query('select registered_at is not null as registered from relay.migration where user_id = $1', [
        host.session.host.userId,
      ]),
    ).toEqual([{ registered: true }]);
  });
});

describe('back in reserve', () => {
  it('stops giving leases, and a host that has one keeps it', async () => {
    const hosts = await Promise.all(Array.from({ length: 60 }, () => seat()));
    to('db');
    await quiet(core);
    const leased = hosts.filter(({ session }) => core.leases.holds(session));
    expect(leased).toHaveLength(50);
    to('reserve');
    await second(10);
    expect(core.leases.unleased()).toHaveLength(10);
    expect(logged('finished')).toMatchObject([{ outcome: 'back-in-reserve' }]);
    expect(hosts.flatMap(({ ends }) => ends)).toEqual([]);
    expect(core.modes).toMatchObject({ raw: 'reserve', effective: 'reserve' });
  });

  it('ten times to and fro with 300 hosts closes nobody, and in the end every host has its lease', async () => {
    const hosts = await Promise.all(Array.from({ length: 300 }, () => seat()));
    let most = 0;
    for (let flips = 0; flips < 10; flips += 1) {
      to(flips % 2 === 0 ? 'db' : 'reserve', { reregisterInFlight: 1 + (flips % 3) });
      for (let ticks = 0; ticks < 3; ticks += 1) {
        clock.advance(100);
        most = Math.max(most, core.modes.reregistration.calls);
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    to('db');
    await second(10);
    expect(most).toBeLessThanOrEqual(core.db.poolMax - 2);
    expect(core.modes).toMatchObject({ raw: 'db', effective: 'db' });
    expect(hosts.flatMap(({ ends }) => ends)).toEqual([]);
    expect(core.leases.unleased()).toEqual([]);
  });
});

describe('leases of a reserve cell', () => {
  it('that were held on the way into reserve are renewed, and no host from memory is', async () => {
    const [leased, unleased] = [await seat(), await seat()];
    expect(await core.leases.activate(leased.session.host, leased.session)).toBe('active');
    core.leases.keep(leased.session);
    core.leases.renewAll();
    await until(
      'a renewal',
      () => counted(core, 'orca_relay_control_renewals_total'),
      (renewed) => renewed > 0,
    );
    expect(await counted(core, 'orca_relay_control_renewals_total', { outcome: 'renewed' })).toBe(1);
    expect(await lease(unleased)).toEqual([]);
  });

  it('of a process that was superseded make it stand down', async () => {
    await seat();
    await database.query(`update relay.cell_runtime set incarnation = gen_random_uuid() where cell_id = 'c1'`);
    to('db');
    await quiet(core);
    expect(core.stoodDown).toBeGreaterThanOrEqual(1);
  });
});
