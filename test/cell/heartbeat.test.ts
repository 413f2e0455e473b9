import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Heartbeat } from '../../server/cell/heartbeat.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { counted, startCore, type TestCore } from './support/core.ts';

const URL = 'http://127.0.0.1:4001';
let database: FreshDatabase;
let core: TestCore;
let clock: HandClock;
let watermark: number;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.drop());
beforeEach(async () => {
  await database.query('truncate relay.cell_runtime');
  await database.query('delete from relay.cell');
  clock = new HandClock();
  watermark = 0;
});

function source(
  over: Partial<ConstructorParameters<typeof Heartbeat>[1]> = {},
): ConstructorParameters<typeof Heartbeat>[1] {
  return {
    url: () => URL,
    ready: () => true,
    load: () => ({ enforced_units: 3, inclusion_watermark: ++watermark }),
    registration: () => 'orca-relay sql "…"',
    ...over,
  };
}

const register = () => database.query('select relay_v1.register_cell($1, $2, $3, $4)', ['c1', URL, 'us-central1', 900]);
const runtime = () =>
  database.query('select incarnation::text, ready, enforced_units, inclusion_watermark from relay.cell_runtime');
const beats = (answer: string) => counted(core, 'orca_relay_heartbeats_total', { answer });

/** Waits until that many beats were answered so, and the next one is armed. */
async function beat(answer: string, times: number): Promise<void> {
  await until(
    `${times} × ${answer}`,
    () => beats(answer),
    (seen) => seen === times,
  );
  await until(
    'the next beat armed',
    () => clock.armed,
    (armed) => armed === 1,
  );
}

async function withCore(work: (core: TestCore) => Promise<void>): Promise<void> {
  core = startCore(database.urlFor('relay_cell'), clock);
  try {
    await work(core);
  } finally {
    await core.close();
  }
}

describe('heartbeats (03, heartbeats)', () => {
  it('come at once and then every 15 s, with what the cell carries', () =>
    withCore(async () => {
      await register();
      const heartbeat = new Heartbeat(core, source());
      expect(heartbeat.heard).toBe(false);
      heartbeat.start();
      await heartbeat.accepted;
      await beat('ok', 1);
      expect(await runtime()).toEqual([
        { incarnation: core.identity.incarnation, ready: true, enforced_units: 3, inclusion_watermark: 1 },
      ]);
      clock.advance(14_999);
      expect(await beats('ok')).toBe(1);
      clock.advance(1);
      await beat('ok', 2);
      heartbeat.stop();
      expect(clock.armed).toBe(0);
    }));

  it('come early when something is to be told, one at a time, and the regular ones count from there', () =>
    withCore(async () => {
      await register();
      const heartbeat = new Heartbeat(core, source());
      heartbeat.soon();
      expect(clock.armed).toBe(0);
      heartbeat.start();
      await beat('ok', 1);
      clock.advance(10_000);
      heartbeat.soon();
      heartbeat.soon();
      heartbeat.soon();
      await until(
        'the early beat',
        () => beats('ok'),
        (seen) => seen === 2,
      );
      clock.advance(0);
      await beat('ok', 3);
      clock.advance(14_999);
      expect(await beats('ok')).toBe(3);
      clock.advance(1);
      await beat('ok', 4);
      heartbeat.stop();
      heartbeat.soon();
      expect(clock.armed).toBe(0);
    }));

  it('are not accepted from a cell that nobody registered: it says how, tries again after 1, 2, 4, 4 s, and serves then', () =>
    withCore(async () => {
      const heartbeat = new Heartbeat(core, source());
      heartbeat.start();
      for (const [index, wait] of [1_000, 2_000, 4_000, 4_000].entries()) {
        await beat('cell_not_found', index + 1);
        clock.advance(wait - 1);
        expect(await beats('cell_not_found')).toBe(index + 1);
        if (index === 3) await register();
        clock.advance(1);
      }
      await heartbeat.accepted;
      heartbeat.stop();
      const told = core.lines.filter(({ event }) => event === 'orca_relay_heartbeat_refused');
      expect(told).toHaveLength(1);
      expect(told[0]?.msg).toContain('Register it: orca-relay sql');
    }));

  it('survive a database that fails, each attempt by itself, and stay heard (incident 20)', () =>
    withCore(async () => {
      await register();
      const heartbeat = new Heartbeat(core, source());
      heartbeat.start();
      await beat('ok', 1);
      await database.query('alter function relay_v1.heartbeat rename to heartbeat_away');
      clock.advance(15_000);
      await beat('database_error', 1);
      clock.advance(1_000);
      await beat('database_error', 2);
      expect(heartbeat.heard).toBe(true);
      await database.query('alter function relay_v1.heartbeat_away rename to heartbeat');
      clock.advance(2_000);
      await beat('ok', 2);
      clock.advance(15_000);
      await beat('ok', 3);
      heartbeat.stop();
    }));

  it('make a process stand down once a later one has the cell, and stop', () =>
    withCore(async () => {
      await register();
      const heartbeat = new Heartbeat(core, source());
      heartbeat.start();
      await beat('ok', 1);
      await database.query(
        `update relay.cell_runtime set incarnation = gen_random_uuid(), started_at = started_at + interval '1 s'`,
      );
      clock.advance(15_000);
      await until(
        'standing down',
        () => core.stoodDown,
        (times) => times === 1,
      );
      expect(clock.armed).toBe(0);
    }));

  it('say how late they are when the process was not running', () =>
    withCore(async () => {
      await register();
      const heartbeat = new Heartbeat(core, source());
      heartbeat.start();
      await beat('ok', 1);
      clock.sleep(60_000);
      await beat('ok', 2);
      heartbeat.stop();
      expect(core.lines.find(({ event }) => event === 'orca_relay_heartbeat_late')).toMatchObject({ lateMs: 45_000 });
    }));

  it('end with one that says not ready', () =>
    withCore(async () => {
      await register();
      let ready = true;
      const heartbeat = new Heartbeat(core, source({ ready: () => ready }));
      heartbeat.start();
      await beat('ok', 1);
      ready = false;
      await heartbeat.farewell();
      expect(await runtime()).toMatchObject([{ ready: false }]);
      expect(clock.armed).toBe(0);
    }));
});
