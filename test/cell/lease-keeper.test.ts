import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LIMITS } from '../../contract/index.ts';
import { activate } from '../../server/cell/activation.ts';
import { reactToChange } from '../../server/cell/change-reactions.ts';
import { ControlSession } from '../../server/cell/control-session.ts';
import type { EndCause } from '../../server/cell/control-states.ts';
import { hostKey } from '../../server/cell/seats.ts';
import type { Change } from '../../server/sql-interface.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { holdActivations } from '../support/held-activations.ts';
import { counted, startCore, type TestCore } from './support/core.ts';
import { MemorySocket } from './support/memory-socket.ts';

const URL = 'http://127.0.0.1:4001';
let database: FreshDatabase;
let core: TestCore;
let clock: HandClock;
let ends: [string, EndCause][];
let hosts = 0;

beforeAll(async () => {
  database = await freshDatabase();
  for (const [id, url] of [
    ['c1', URL],
    ['c2', 'http://127.0.0.1:4002'],
  ]) {
    await database.query('select relay_v1.register_cell($1, $2, $3, $4)', [id, url, 'us-central1', 10_000]);
  }
});
afterAll(() => database.drop());
beforeEach(async () => {
  clock = new HandClock();
  ends = [];
  core = startCore(database.urlFor('relay_cell'), clock);
  const { identity } = core;
  const load = { enforced_units: 0, inclusion_watermark: 0 };
  await database.query('delete from relay.cell_runtime');
  await core.db.call('heartbeat', {
    cell_id: 'c1',
    incarnation: identity.incarnation,
    url: URL,
    region: 'us-central1',
    started_at: identity.startedAt,
    ready: true,
    load,
  });
});
afterEach(async () => {
  core.leases.stop();
  await core.background.idle();
  await core.close();
});

interface Seated {
  session: ControlSession;
  socket: MemorySocket;
}

/** A host with a row here, seated, its lease taken. */
async function seat(epoch = 1): Promise<Seated> {
  hosts += 1;
  const host = { userId: `user-${hosts}`, relayHostId: `host${String(hosts).padStart(12, '0')}` };
  await database.query(
    `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at) values ($1, $2, 'c1', $3, relay.now())`,
    [host.userId, host.relayHostId, epoch],
  );
  const socket = new MemorySocket();
  const session = new ControlSession(
    core,
    {
      message: () => {},
      tick: (ticked) => core.leases.renewIfDue(ticked),
      closed: () => {},
      stepped: () => {},
      ended: (ended, { cause }) => {
        ends.push([ended.host.userId, cause]);
        core.leases.forget(ended);
      },
    },
    {
      identity: { ...host, profileId: 'p', organizationId: null, expiresAt: clock.wallNow() + 86_400_000 },
      socket: socket.peer,
      capabilities: new Set(),
      watermark: 1,
    },
  );
  session.activate({ epoch, generation: core.seats.nextGeneration(host), appVersion: '1' });
  core.seats.seat(session);
  expect(await core.leases.activate(host, session)).toBe('active');
  core.leases.keep(session);
  return { session, socket };
}

const lease = ({ session }: Seated) =>
  database.query<{ state: string; units: number; generation: number; expires_at: number }>(
    'select state, units, generation, expires_at from relay.lease where user_id = $1',
    [session.host.userId],
  );
const renewals = (outcome: string) => counted(core, 'orca_relay_control_renewals_total', { outcome });
const recoveries = (outcome: string) => counted(core, 'orca_relay_control_recoveries_total', { outcome });

/** One tick of every session, the batch that follows it, and its answer. */
async function renew(outcome: string, times: number): Promise<void> {
  clock.advance(LIMITS.controlPingIntervalMs);
  for (const session of core.seats.sessions()) session.pong(0);
  clock.advance(LIMITS.renewalFlushMs);
  await until(
    `${times} × ${outcome}`,
    () => renewals(outcome),
    (seen) => seen === times,
  );
}

describe('renewals (wire 2.7)', () => {
  it('are due 15 s after the activation and every 30 s after that, with the units held', async () => {
    const host = await seat();
    const [before] = await lease(host);
    await database.advanceClock(15_000);
    await renew('renewed', 1);
    const [after] = await lease(host);
    expect(Number(after?.expires_at) - Number(before?.expires_at)).toBeGreaterThanOrEqual(15_000);
    expect(after).toMatchObject({ state: 'active', units: 1, generation: 1 });
    clock.advance(LIMITS.controlPingIntervalMs + LIMITS.renewalFlushMs);
    expect(core.db.waiters()).toBe(0);
    expect(await renewals('renewed')).toBe(1);
    await renew('renewed', 2);
  });

  it('of all hosts go in batches of at most 200 rows', async () => {
    await Promise.all(Array.from({ length: 230 }, () => seat()));
    clock.advance(LIMITS.controlPingIntervalMs);
    clock.advance(LIMITS.renewalFlushMs);
    await until(
      'all renewed',
      () => renewals('renewed'),
      (seen) => seen === 230,
    );
    expect(await core.registry.getSingleMetricAsString('orca_relay_control_renewal_flush_seconds')).toContain(
      'orca_relay_control_renewal_flush_seconds_count 2',
    );
  });

  it('that find no lease take it again, once, and nobody is closed', async () => {
    const host = await seat();
    await database.query('delete from relay.lease where user_id = $1', [host.session.host.userId]);
    await renew('control_activity_not_found', 1);
    await until(
      'recovered',
      () => recoveries('active'),
      (seen) => seen === 1,
    );
    expect(await lease(host)).toMatchObject([{ state: 'active', generation: 1 }]);
    expect(ends).toEqual([]);
    await renew('renewed', 0);
    await renew('renewed', 1);
    expect(await renewals('control_activity_not_found')).toBe(1);
  });

  it('put right what an activation of an older generation wrote when it came late', async () => {
    const host = await seat();
    const older = { epoch: 1, generation: host.session.generation - 1, watermark: 1 };
    expect(await core.leases.activate(host.session.host, older)).toBe('active');
    expect(await lease(host)).toMatchObject([{ generation: older.generation }]);
    await renew('control_activity_not_found', 1);
    await until(
      'recovered',
      () => recoveries('active'),
      (seen) => seen === 1,
    );
    expect(await lease(host)).toMatchObject([{ state: 'active', generation: host.session.generation }]);
    expect(ends).toEqual([]);
  });

  it('that find no lease while the host is being activated leave it to that, and hold nothing else up', async () => {
    const hosts = await Promise.all(Array.from({ length: 5 }, () => seat()));
    const turns = await Promise.all(hosts.map(({ session }) => core.activations.turn(hostKey(session.host))));
    await database.query('delete from relay.lease');
    await renew('control_activity_not_found', 5);
    const other = { userId: 'other', relayHostId: 'otherhost0000000' };
    core.leases.release(other, { epoch: 1, generation: 1 }, null);
    await core.background.idle();
    expect(await counted(core, 'orca_relay_lease_releases_total', { outcome: 'done' })).toBe(1);
    expect(await recoveries('active')).toBe(0);
    for (const turn of turns) if (turn.granted) turn.release();
    await renew('control_activity_not_found', 10);
    await until(
      'all recovered',
      () => recoveries('active'),
      (seen) => seen === 5,
    );
  });

  it('that take a lease again for a control that ends meanwhile give it up again', async () => {
    const host = await seat();
    await database.query('delete from relay.lease where user_id = $1', [host.session.host.userId]);
    const held = await holdActivations(database);
    await renew('control_activity_not_found', 1);
    await held.waiting();
    host.session.end('orphan-expired');
    await held.letGo();
    await core.background.idle();
    expect(await recoveries('active')).toBe(1);
    expect(await lease(host)).toEqual([]);
  });

  it.each([
    ['another cell', `cell_id = 'c2', epoch = epoch + 1`, 'wrong_cell'],
    ['another epoch', 'epoch = epoch + 1', 'wrong_epoch'],
  ])('that find the host on %s end its control', async (_name, change, outcome) => {
    const host = await seat();
    await database.query(`update relay.assignment set ${change} where user_id = $1`, [host.session.host.userId]);
    await database.query('delete from relay.lease where user_id = $1', [host.session.host.userId]);
    await renew('control_activity_not_found', 1);
    await until(
      'the end',
      () => ends,
      (seen) => seen.length === 1,
    );
    expect(await recoveries(outcome)).toBe(1);
    expect(host.socket.closed).toEqual({ code: 4503, reason: 'control activity moved' });
  });

  it('that find a retiring lease take no more phones, and end the control with its grace', async () => {
    const host = await seat();
    await database.query(
      `update relay.lease set state = 'retiring', retire_until = to_timestamp($2 / 1000.0) where user_id = $1`,
      [host.session.host.userId, clock.wallNow() + LIMITS.controlPingIntervalMs + 31_000],
    );
    await renew('retiring', 1);
    await until(
      'drain-only',
      () => host.session.state,
      (state) => state === 'drain-only',
    );
    const [drain] = host.socket.frames('drain');
    expect(Math.abs(Number(drain?.graceMs) - 30_000)).toBeLessThanOrEqual(1);
    clock.advance(31_000);
    expect(host.socket.closed).toEqual({ code: 4503, reason: 'control migration completed' });
  });

  it('that a failing database leaves unanswered close nobody, and are tried again at every tick', async () => {
    const host = await seat();
    await database.query('alter function relay_v1.renew_leases rename to renew_leases_away');
    await renew('database_error', 1);
    await renew('database_error', 2);
    await database.query('alter function relay_v1.renew_leases_away rename to renew_leases');
    await renew('renewed', 1);
    expect(host.session.state).toBe('active');
  });

  it('skip a lease that another transaction holds, and try again', async () => {
    const host = await seat();
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    await holder.query('begin');
    await holder.query('select 1 from relay.lease where user_id = $1 for update', [host.session.host.userId]);
    await renew('lease_lock_unavailable', 1);
    await holder.query('commit');
    await holder.end();
    await renew('renewed', 1);
  });

  it('of a process that was superseded make it stand down', async () => {
    await seat();
    await database.query('update relay.cell_runtime set incarnation = gen_random_uuid()');
    await renew('stale_cell_incarnation', 1);
    expect(core.stoodDown).toBe(1);
  });
});

describe('releases', () => {
  it('of an older generation free nothing that a newer one holds', async () => {
    const host = await seat();
    const newer = { epoch: 1, generation: core.seats.nextGeneration(host.session.host), watermark: 2 };
    expect(await core.leases.activate(host.session.host, newer)).toBe('active');
    core.leases.release(host.session.host, host.session, null);
    await core.background.idle();
    expect(await lease(host)).toMatchObject([{ generation: 2 }]);
    core.leases.release(host.session.host, newer, 'signed-out');
    await core.background.idle();
    expect(await lease(host)).toEqual([]);
    expect(
      await database.query('select last_close_reason from relay.assignment where user_id = $1', [
        host.session.host.userId,
      ]),
    ).toEqual([{ last_close_reason: 'signed-out' }]);
  });
});

describe('changes (04, change stream)', () => {
  const moved = (host: Seated, over: Partial<Change>): Change => ({
    id: 1,
    kind: 'moved',
    from_cell: 'c1',
    to_cell: 'c2',
    user_id: host.session.host.userId,
    relay_host_id: host.session.host.relayHostId,
    epoch: 2,
    rule: 'roll-isolated',
    detail: { forced: false, retire_until: 1_060_000 },
    at: 1_000_000,
    ...over,
  });

  it('close a host that was moved away by force at once, 4409', async () => {
    const host = await seat();
    reactToChange(core, moved(host, { detail: { forced: true, retire_until: null } }));
    expect(host.socket.closed).toEqual({ code: 4409, reason: 'assignment moved' });
  });

  it('let one that retires go on until its grace is over', async () => {
    const host = await seat();
    reactToChange(core, moved(host, {}));
    expect(host.session.state).toBe('drain-only');
    clock.advance(59_999);
    host.session.pong(0);
    expect(host.socket.closed).toBeNull();
    clock.advance(1);
    expect(host.socket.closed?.code).toBe(4503);
  });

  it('that overtake an activation on its way back from the database refuse it', async () => {
    const host = await seat();
    const socket = new MemorySocket();
    const { identity } = host.session;
    const effects = { message: () => {}, tick: () => {}, closed: () => {}, stepped: () => {}, ended: () => {} };
    const start = { identity, socket: socket.peer, capabilities: new Set<never>(), watermark: 2 };
    const proved = new ControlSession(core, effects, start);
    const activating = activate(core, proved, socket.peer, {
      frame: {
        type: 'host-hello',
        v: 1,
        relayHostId: identity.relayHostId,
        assignmentEpoch: 1,
        hostPublicKeyB64: '',
        appVersion: '1',
      },
      base: null,
      shown: null,
    });
    // The question is on its way once the promises before it are through.
    await new Promise((resolve) => setImmediate(resolve));
    reactToChange(core, moved(host, { detail: { forced: true, retire_until: null } }));
    await activating;
    expect(socket.closed).toEqual({ code: 4409, reason: 'assignment changed during host proof' });
    await core.background.idle();
    expect(await lease(host)).toEqual([]);
  });

  it.each<[string, Partial<Change>]>([
    ['of a host seated at the change’s own epoch', { epoch: 1 }],
    ['of a move from another cell', { from_cell: 'c2', to_cell: 'c1' }],
    ['that move nobody', { kind: 'granted' }],
    ['of a host that is not here', { user_id: 'nobody' }],
  ])('%s change nothing', async (_name, over) => {
    const host = await seat();
    reactToChange(core, moved(host, { detail: { forced: true }, ...over }));
    expect(host.session.state).toBe('active');
  });
});
