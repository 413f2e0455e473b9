import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DEFAULT_CELL_FLAGS, readCellFlags } from '../../contract/cell-flags.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { startCore, type TestCore } from './support/core.ts';

let database: FreshDatabase;
let core: TestCore;
let clock: HandClock;

beforeAll(async () => {
  database = await freshDatabase();
  await database.query(`select relay_v1.register_cell('c1', 'http://127.0.0.1:4001', 'us-central1', 1000)`);
});
afterAll(() => database.drop());
beforeEach(() => {
  clock = new HandClock();
  core = startCore(database.urlFor('relay_cell'), clock);
});
afterEach(async () => {
  core.orders.stop();
  core.modes.stop();
  await core.close();
});

const follow = (generation: number, flags: Record<string, unknown>) =>
  core.modes.follow({ flags_generation: generation, flags });
const logged = (event: string) => core.lines.filter((line) => line.event === event);

describe('flags', () => {
  it('84: of a boot are the defaults, and those of the row once it was read', async () => {
    expect(core.modes).toMatchObject({ raw: 'db', effective: 'db', generation: 0, flags: DEFAULT_CELL_FLAGS });
    await database.query(`select relay_v1.set_admit_mode('c1', 'reserve')`);
    const flags = { admitMode: 'reserve', intakePerSec: 7, warp: 9 };
    await database.query(`select relay_v1.set_cell_flags('c1', $1, 0)`, [JSON.stringify(flags)]);
    core.orders.read();
    await until(
      'the flags',
      () => core.modes.generation,
      (generation) => generation === 1,
    );
    expect(core.modes).toMatchObject({ raw: 'reserve', effective: 'reserve', flags: { intakePerSec: 7 } });
    expect(logged('orca_relay_cell_flags_applied')).toMatchObject([{ generation: 1, ignoredKeys: ['warp'] }]);
  });

  it('stand while the database does not answer', async () => {
    follow(1, { admitMode: 'reserve' });
    await database.query('alter function relay_v1.cell_orders rename to cell_orders_away');
    core.orders.read();
    await until(
      'a failed read',
      () => logged('orca_relay_cell_orders_unread'),
      (lines) => lines.length === 1,
    );
    expect(core.modes.raw).toBe('reserve');
    await database.query('alter function relay_v1.cell_orders_away rename to cell_orders');
  });

  it('84: that are void as a whole change nothing, and are named once', () => {
    follow(1, { admitMode: 'reserve', deadManTripSlots: 64 });
    for (let reads = 0; reads < 3; reads++) follow(2, { admitMode: 'db', deadManTripSlots: 65 });
    expect(core.modes).toMatchObject({ raw: 'reserve', generation: 1, flags: { deadManTripSlots: 64 } });
    expect(logged('orca_relay_cell_flags_refused')).toMatchObject([
      { generation: 2, reason: 'void', keys: ['deadManTripSlots'] },
    ]);
    follow(3, { admitMode: 'db' });
    expect(core.modes).toMatchObject({ raw: 'db', generation: 3 });
  });

  it('of an older generation change nothing', () => {
    follow(5, { admitMode: 'reserve' });
    follow(4, { admitMode: 'db' });
    expect(core.modes).toMatchObject({ raw: 'reserve', generation: 5 });
    expect(logged('orca_relay_cell_flags_refused')).toMatchObject([{ generation: 4, applied: 5, reason: 'older' }]);
  });

  it('V1: of a generation that came before with others, as after a failover that lost those, are refused aloud and once', async () => {
    follow(4, { admitMode: 'reserve' });
    for (let reads = 0; reads < 3; reads++) follow(4, { admitMode: 'db' });
    expect(core.modes).toMatchObject({ raw: 'reserve', generation: 4 });
    expect(logged('orca_relay_cell_flags_refused')).toMatchObject([{ generation: 4, applied: 4, reason: 'repeated' }]);
    expect(await core.registry.metrics()).toMatch(/orca_relay_cell_flags_total\{outcome="repeated"\} 1/);
    follow(5, { admitMode: 'db' });
    expect(core.modes).toMatchObject({ raw: 'db', generation: 5 });
  });

  it('of a cell that nobody has said anything to are nothing to refuse', () => {
    for (let reads = 0; reads < 2; reads++) follow(0, {});
    expect(logged('orca_relay_cell_flags_refused')).toEqual([]);
  });

  it('84: that a cell would void are those that the database refuses', async () => {
    const keys = ['admitMode', 'ticketCheck', 'readinessLocal', 'rejectionFence', 'reserveDryRun', 'intakePerSec'];
    const numbers = ['deadManTripSlots', 'reregisterInFlight', 'readTimeoutMarginMs', 'unknown'];
    const values = [null, true, false, 'db', 'reserve', 'off', 'shadow', 'enforce', 'on', '2', '', [1], {}].concat([
      -1, 0, 0.5, 1, 1.5, 2, 16, 17, 64, 65, 999, 1_000, 1_000.5, 1_001, 60_000, 60_001,
    ] as never[]);
    const sets = [...keys, ...numbers].flatMap((key) => values.map((value) => ({ [key]: value })));
    const answers = await database.query<{ flags: Record<string, unknown>; valid: boolean }>(
      'select f as flags, relay.flags_are_valid(f) as valid from jsonb_array_elements($1) f',
      [JSON.stringify(sets)],
    );
    expect(answers).toHaveLength(sets.length);
    const disagreed = answers.filter(({ flags, valid }) => readCellFlags(flags).ok !== valid);
    expect(disagreed).toEqual([]);
    expect(answers.filter(({ valid }) => valid).length).toBeGreaterThan(values.length);
  });

  it('of the same generation are applied once', () => {
    for (let reads = 0; reads < 3; reads++) follow(1, { admitMode: 'reserve' });
    expect(logged('orca_relay_cell_flags_applied')).toHaveLength(1);
  });
});

describe('the last word of a director', () => {
  it('the first is told at once, for whoever wants the cell in reserve mode', () => {
    for (let polls = 0; polls < 3; polls++) core.modes.contact();
    expect(core.reports).toBe(1);
  });

  it('is known in any mode, and before the first there is none', () => {
    expect(core.modes.directorContactMs).toBeUndefined();
    core.modes.contact();
    clock.advance(1_500);
    follow(1, { admitMode: 'reserve' });
    expect(core.modes.directorContactMs).toBe(1_500);
  });
});

describe('leaving reserve', () => {
  it('88: voids what was booked, and an empty cell is through at once', () => {
    follow(1, { admitMode: 'reserve' });
    const item = { userId: 'u', relayHostId: 'abcdefghijklmnop', epoch: 1, ttlMs: 30_000 };
    expect(core.book.take({ v: 1, directorId: 'd', items: [item] })).toEqual([{ outcome: 'ok' }]);
    follow(2, { admitMode: 'db' });
    expect([core.book.size, core.units.enforced]).toEqual([0, 0]);
    follow(3, { admitMode: 'db', intakePerSec: 3 });
    expect(logged('orca_relay_cell_admit_mode')).toMatchObject([
      { to: 'reserve', voided: 0 },
      { to: 'leaving', voided: 1 },
      { to: 'db', voided: 0 },
    ]);
    expect(core.modes).toMatchObject({ raw: 'db', effective: 'db' });
  });
});
