import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { tripWindowMs } from '../../server/cell/dead-man.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';
import { counted, startCore, type TestCore } from './support/core.ts';
import { addReserveCells, beHeard, pass, quiet, saysMode, seatFromMemory } from './support/reserve-cell.ts';

/** Past the window at the next tick. */
const WINDOW_S = Math.floor(tripWindowMs('c1') / 1_000) + 1;
const MAX_RETRY_S = 36;

/** Of a machine that can be put to sleep: the time of the world goes on, and its own stands. */
class SuspendedClock extends HandClock {
  #slept = 0;

  override wallNow(): number {
    return super.wallNow() + this.#slept;
  }

  suspend(ms: number): void {
    this.#slept += ms;
  }
}

let database: FreshDatabase;
let proxy: TcpProxy;
let core: TestCore;
let clock: SuspendedClock;
let holder: pg.Client;

beforeAll(async () => {
  database = await freshDatabase();
  await database.setClock(Date.UTC(2030, 0, 1));
  await addReserveCells(database, ['c1', 'c2']);
  proxy = await startProxy(database.url);
});
afterAll(async () => {
  await proxy.stop();
  await database.drop();
});
beforeEach(async () => {
  clock = new SuspendedClock();
  core = startCore(proxy.through(database.urlFor('relay_cell')), clock);
  await database.query('delete from relay.cell_effective_mode');
  await beHeard(database, 'c1', core.identity.incarnation);
  await saysMode(database, 'c2', 'reserve');
  holder = new pg.Client({ connectionString: database.url });
  await holder.connect();
  core.modes.start();
});
afterEach(async () => {
  proxy.open();
  core.modes.stop();
  await holder.end();
  await quiet(core);
  await core.close();
});

const flags = async (generation: number, deadManTripSlots?: number, admitMode = 'reserve') => {
  const slots = deadManTripSlots === undefined ? {} : { deadManTripSlots };
  core.modes.follow({ flags_generation: generation, flags: { admitMode, ...slots } });
  await quiet(core);
};
const stands = () => {
  const { raw, effective, generation, trip, row } = core.modes;
  return { raw, effective, generation, state: trip.state, silent: trip.silent, writing: row.writing };
};
const second = (seconds = 1, each = () => {}) => pass(core, clock, seconds, each);
const row = async () => {
  const rows = await database.query<{ mode: string }>(
    `select mode from relay.cell_effective_mode where cell_id = 'c1'`,
  );
  return rows[0]?.mode ?? null;
};
const unleased = async () =>
  (await database.query<{ n: number }>(`select unleased as n from relay.cell_effective_mode where cell_id = 'c1'`))[0]
    ?.n;
const logged = (event: string) => core.lines.filter((line) => line.event === event);
const tripped = () => logged('orca_relay_cell_reserve_dead_man_tripped');
const held = () => logged('orca_relay_cell_reserve_dead_man_held');
const claims = (outcome?: string) =>
  counted(core, 'orca_relay_reserve_trip_claims_total', outcome === undefined ? {} : { outcome });
const writes = (mode: string) => counted(core, 'orca_relay_reserve_effective_writes_total', { mode, outcome: 'ok' });

/** The own row cannot be written until this transaction ends. */
async function holdRow(): Promise<void> {
  await holder.query('begin');
  await holder.query(`select from relay.cell_effective_mode where cell_id = 'c1' for update`);
}

/** A claim is under way, and waits for the row. */
async function claimWaiting(): Promise<void> {
  await until(
    'a claim that waits',
    () =>
      database.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%claim_trip_slot%'`,
      ),
    (rows) => rows.length === 1,
  );
}

describe('silence, with no number of slots', () => {
  it('61: trips the cell for good: one line, its row says db, it takes leases, and nobody is closed', async () => {
    await flags(1);
    const host = await seatFromMemory(core, database);
    await second();
    expect(await row()).toBe('reserve');
    await second(WINDOW_S);
    expect(core.modes.raw).toBe('db');
    await second(2);
    expect(tripped()).toHaveLength(1);
    expect(tripped()[0]).toMatchObject({ generation: 1 });
    expect(tripped()[0]?.silentMs).toBeGreaterThan(tripWindowMs('c1'));
    expect(await row()).toBe('db');
    expect(core.lines).toContainEqual(expect.objectContaining({ event: 'orca_relay_cell_admit_mode', to: 'leaving' }));
    expect(core.leases.unleased()).toEqual([]);
    expect(host.ends).toEqual([]);
    await second(300, () => core.modes.contact());
    expect(core.modes.raw).toBe('db');
    expect(tripped()).toHaveLength(1);
    await flags(2);
    expect(stands()).toMatchObject({ raw: 'reserve', effective: 'reserve' });
    expect(await row()).toBe('reserve');
    await second(WINDOW_S + 1);
    expect(tripped()).toHaveLength(2);
  });

  it('66: of exactly the window is not enough', async () => {
    await flags(1);
    clock.sleep(tripWindowMs('c1'));
    core.modes.trip.watch();
    expect(core.modes.trip.state).toBe('armed');
    clock.sleep(1);
    core.modes.trip.watch();
    expect(core.modes.trip.state).toBe('tripped');
  });

  it('begins anew with every contact and with every generation of flags', async () => {
    await flags(1);
    await second(WINDOW_S - 2);
    core.modes.contact();
    await second(WINDOW_S - 2);
    await flags(2);
    await second(WINDOW_S - 2);
    expect(core.modes.raw).toBe('reserve');
    expect(tripped()).toEqual([]);
  });
});

describe('silence, with trip slots', () => {
  it('62, 73: a refused claim holds the cell in reserve, said once over many ticks; granted, it trips and is latched', async () => {
    await saysMode(database, 'c2', 'db');
    await flags(1, 1);
    const host = await seatFromMemory(core, database);
    await second(WINDOW_S + 1);
    expect(core.modes.raw).toBe('reserve');
    await second(4 * MAX_RETRY_S);
    expect(held()).toMatchObject([{ generation: 1, reason: 'full' }]);
    expect(await claims('full')).toBeGreaterThanOrEqual(5);
    expect(core.leases.unleased()).toEqual([host.session]);
    expect(await row()).toBe('reserve');
    await saysMode(database, 'c2', 'reserve');
    await second(MAX_RETRY_S + 1);
    expect(core.modes.raw).toBe('db');
    expect(await row()).toBe('db');
    expect(tripped()).toHaveLength(1);
    await second(60, () => core.modes.contact());
    expect(core.modes.trip.state).toBe('tripped');
    expect(await row()).toBe('db');
    expect(host.ends).toEqual([]);
  });

  it('63, 82: none at all: 30 minutes of silence trip nothing, and nothing is asked', async () => {
    await flags(1, 0);
    const host = await seatFromMemory(core, database);
    await second(1_800);
    expect(stands()).toMatchObject({ raw: 'reserve', state: 'held' });
    expect(held()).toHaveLength(1);
    expect(await claims()).toBe(0);
    expect(await row()).toBe('reserve');
    expect(host.ends).toEqual([]);
  });

  /** Silent for exactly so long that the next tick claims, and the claim waits for its row. */
  async function claimInFlight(): Promise<void> {
    await flags(1, 1);
    await second(WINDOW_S - 1);
    await holdRow();
    clock.advance(1_000);
    await claimWaiting();
    expect(core.modes.trip.state).toBe('claiming');
  }

  it('64: a grant that arrives after a director was heard is given back at once', async () => {
    await claimInFlight();
    core.modes.contact();
    await holder.query('commit');
    await quiet(core);
    expect(await claims('late')).toBe(1);
    expect(stands()).toMatchObject({ raw: 'reserve', state: 'armed' });
    expect(await row()).toBe('reserve');
    expect(tripped()).toEqual([]);
  });

  it('65: a grant for flags that others have replaced is given back at once', async () => {
    await claimInFlight();
    core.modes.follow({ flags_generation: 2, flags: { admitMode: 'reserve', deadManTripSlots: 1 } });
    await holder.query('commit');
    await quiet(core);
    expect(await claims('late')).toBe(1);
    expect(stands()).toMatchObject({ raw: 'reserve', generation: 2, state: 'armed' });
    expect(await row()).toBe('reserve');
    await second(WINDOW_S - 1);
    expect(core.modes.raw).toBe('reserve');
  });

  it('69: nor does one count for flags that have left reserve: the row says db, once', async () => {
    await claimInFlight();
    core.modes.follow({ flags_generation: 2, flags: { admitMode: 'db' } });
    await holder.query('commit');
    await quiet(core);
    await second(60);
    expect(stands()).toMatchObject({ raw: 'db', effective: 'db', state: 'off' });
    expect(await row()).toBe('db');
    expect(tripped()).toEqual([]);
    expect(await claims()).toBe(1);
  });

  it('67: a claim waits for a write of the row in flight, which cannot land on it afterwards', async () => {
    await flags(1, 1);
    await second(WINDOW_S - 16);
    await holdRow();
    for (let s = 0; s < 20; s += 1) clock.advance(1_000);
    expect(stands()).toMatchObject({ writing: true, state: 'armed', silent: true });
    await holder.query('commit');
    await quiet(core);
    expect(await claims()).toBe(0);
    await second();
    expect(core.modes.trip.state).toBe('tripped');
    expect(await row()).toBe('db');
  });

  it('68: while it is held the row is said again every 15 s, and claims are 24 to 36 s apart', async () => {
    await saysMode(database, 'c2', 'db');
    await flags(1, 1);
    await second(WINDOW_S);
    const before = { writes: await writes('reserve'), claims: await claims() };
    expect(before.claims).toBe(1);
    await second(23);
    expect(await claims()).toBe(1);
    await second(14);
    expect(await claims()).toBe(2);
    await second(600 - 37);
    expect((await writes('reserve')) - before.writes).toBeGreaterThanOrEqual(35);
    expect(await claims()).toBeGreaterThanOrEqual(600 / 37);
    expect(await claims()).toBeLessThanOrEqual(1 + 600 / 24);
  });

  it('69: no claim is sent while calls wait for a connection', async () => {
    await flags(1, 1);
    await second(WINDOW_S - 1);
    await holder.query('select pg_advisory_lock(69)');
    const busy = Array.from({ length: core.db.poolMax + 1 }, () => core.db.query('select pg_advisory_lock_shared(69)'));
    await until(
      'a full pool',
      () => core.db.waiters(),
      (waiters) => waiters === 1,
    );
    for (let s = 0; s < 60; s += 1) clock.advance(1_000);
    expect(stands()).toMatchObject({ raw: 'reserve', state: 'armed', writing: false });
    await holder.query('select pg_advisory_unlock(69)');
    await Promise.all(busy);
    await second();
    expect(core.modes.trip.state).toBe('tripped');
  });

  it('70: a tripped row is said again at 5:00 though the pool is full, and not before', async () => {
    await flags(1, 1);
    await second(WINDOW_S);
    expect(core.modes.trip.state).toBe('tripped');
    await holder.query('select pg_advisory_lock(70)');
    const busy = Array.from({ length: core.db.poolMax + 1 }, () => core.db.query('select pg_advisory_lock_shared(70)'));
    await until(
      'a full pool',
      () => core.db.waiters(),
      (waiters) => waiters === 1,
    );
    for (let s = 0; s < 299; s += 1) clock.advance(1_000);
    expect(core.modes.row.writing).toBe(false);
    clock.advance(1_000);
    expect(core.modes.row.writing).toBe(true);
    await holder.query('select pg_advisory_unlock(70)');
    await Promise.all(busy);
    await quiet(core);
    expect(await row()).toBe('db');
  });

  it('takes the lost reply of a granted claim for a refusal, and its row says reserve again', async () => {
    await flags(1, 1);
    // A second after the row was refreshed, so that it is not written anyway.
    await second(1);
    await second((16 - (WINDOW_S % 15)) % 15, () => core.modes.contact());
    await second(WINDOW_S - 2);
    proxy.mute(/claim_trip_slot/);
    clock.advance(1_000);
    expect(core.modes.row.ageMs).toBe(1_000);
    await until('a slot that was won', row, (mode) => mode === 'db');
    proxy.cut();
    await quiet(core);
    expect(stands()).toMatchObject({ raw: 'reserve', state: 'held' });
    expect(held()).toMatchObject([{ reason: 'unanswered' }]);
    proxy.open();
    await second();
    expect(await row()).toBe('reserve');
    await second(MAX_RETRY_S + 1);
    expect(core.modes.trip.state).toBe('tripped');
    expect(await row()).toBe('db');
  });

  it('asks for its slot anew after nine minutes without a word of the database, and goes without the database meanwhile', async () => {
    await flags(1, 1);
    await second(WINDOW_S);
    const host = await seatFromMemory(core, database);
    proxy.refuse();
    await second(542);
    expect(core.modes.trip.state).toBe('held');
    expect(stands()).toMatchObject({ raw: 'reserve', effective: 'reserve' });
    expect(logged('orca_relay_cell_trip_slot_lapsed')).toHaveLength(1);
    await saysMode(database, 'c2', 'db');
    proxy.open();
    await second(2 * MAX_RETRY_S);
    expect(core.modes.trip.state).toBe('held');
    expect(await row()).toBe('reserve');
    expect(host.ends).toEqual([]);
    await saysMode(database, 'c2', 'reserve');
    await second(MAX_RETRY_S);
    expect(core.modes.trip.state).toBe('tripped');
    expect(core.leases.unleased()).toEqual([]);
  });

  it('keeps its slot when the claim anew is granted, though a director is heard', async () => {
    await flags(1, 1);
    await second(WINDOW_S);
    proxy.refuse();
    await second(539);
    expect(core.modes.trip.state).toBe('tripped');
    proxy.open();
    clock.sleep(1_000);
    await quiet(core);
    await second(2, () => core.modes.contact());
    expect(logged('orca_relay_cell_trip_slot_lapsed')).toHaveLength(1);
    expect(await claims('granted')).toBe(2);
    expect(stands()).toMatchObject({ raw: 'db', state: 'tripped' });
    expect(tripped()).toHaveLength(1);
  });

  it('P7: asks for its slot anew after its machine was suspended, which its own clock does not show', async () => {
    await flags(1, 1);
    await second(WINDOW_S);
    expect(core.modes.trip.state).toBe('tripped');
    await saysMode(database, 'c2', 'db');
    clock.suspend(11 * 60_000);
    await second(2);
    expect(stands()).toMatchObject({ raw: 'reserve', state: 'held' });
    await second();
    expect(await row()).toBe('reserve');
  });

  it('leaves the cell to the process that took it over', async () => {
    await flags(1, 1);
    await second(WINDOW_S - 1);
    await database.query(`update relay.cell_runtime set incarnation = gen_random_uuid() where cell_id = 'c1'`);
    await second();
    expect(core.stoodDown).toBeGreaterThanOrEqual(1);
    expect(core.modes.raw).toBe('reserve');
  });

  it('changes nothing after the process was told to leave, whatever a claim on its way wins', async () => {
    await claimInFlight();
    core.modes.stop();
    await holder.query('commit');
    await quiet(core);
    clock.advance(60_000);
    expect(core.modes.raw).toBe('reserve');
    expect(tripped()).toEqual([]);
    expect(core.modes.row.writing).toBe(false);
  });
});

describe('the row of the cell', () => {
  it('71: is written by the first tick, refreshed every 15 s, and says db once on the way out', async () => {
    await flags(1);
    expect(await writes('reserve')).toBe(1);
    await second(60, () => core.modes.contact());
    expect(await writes('reserve')).toBe(5);
    await flags(2, undefined, 'db');
    await second(120);
    expect(await writes('db')).toBe(1);
    expect(await writes('reserve')).toBe(5);
    expect(await row()).toBe('db');
  });

  it('71: is not written for a cell that was never in reserve', async () => {
    await flags(1, undefined, 'db');
    await second(60);
    expect(await row()).toBeNull();
  });

  it('keeps saying reserve until every host holds a lease', async () => {
    await flags(1);
    const host = await seatFromMemory(core, database);
    await holder.query('begin');
    await holder.query('select from relay.assignment where user_id = $1 for update', [host.session.host.userId]);
    core.modes.follow({ flags_generation: 2, flags: { admitMode: 'db' } });
    await second(5);
    expect(stands()).toMatchObject({ raw: 'db', effective: 'reserve' });
    expect(await row()).toBe('reserve');
    expect(await unleased()).toBe(1);
    await holder.query('commit');
    await second(10);
    expect(core.modes.effective).toBe('db');
    expect(await row()).toBe('db');
    expect(await unleased()).toBe(0);
  });

  it('says at most once a minute that it could not be written, and is tried at every tick', async () => {
    await flags(1);
    proxy.refuse();
    await second(90, () => core.modes.contact());
    expect(logged('orca_relay_cell_admit_effective_write_failed')).toHaveLength(2);
    proxy.open();
    await second(1);
    expect(await counted(core, 'orca_relay_reserve_effective_writes_total', { outcome: 'unanswered' })).toBeGreaterThan(
      60,
    );
    expect(await writes('reserve')).toBe(2);
  });
});
