import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Database, openDatabase } from '../../server/database.ts';
import { Fleet, isAboutCells } from '../../server/director/fleet.ts';
import { REFUSALS, Refusals } from '../../server/director/refusals.ts';
import { Regions } from '../../server/director/regions.ts';
import { startSweeps } from '../../server/director/sweeps.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics, type Metrics } from '../../server/metrics.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { knownCell, madeInvite, newHostId } from '../support/director.ts';
import { eventually } from '../support/eventually.ts';
import { HandClock } from '../support/hand-clock.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

let database: FreshDatabase;
let proxy: TcpProxy;
let db: Database;
let clock: HandClock;
let metrics: Metrics;
let lines: Record<string, unknown>[];
const log = createLogger({
  role: 'director',
  destination: { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
});

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await startProxy(database.url);
});
afterAll(async () => {
  await proxy?.stop();
  await database?.drop();
});
beforeEach(() => {
  lines = [];
  clock = new HandClock();
  metrics = createMetrics();
  proxy.open();
  const url = proxy.through(database.urlFor('relay_director'));
  db = openDatabase({ url, applicationName: 'orca-relay/director/upkeep', poolMax: 3, log });
});
afterEach(() => db.close());

const metric = async (name: string) => metrics.registry.getSingleMetricAsString(name);

describe('sweeps', () => {
  test('clean what has ended; one that fails costs only its own tick', async () => {
    const cell = await knownCell(database, 'us-1');
    const host = newHostId();
    await db.call('assign', { user_id: 'user-1', relay_host_id: host, epoch_floor: 0 });
    await madeInvite(database, cell, host);
    await database.advanceClock(11 * 60_000);
    const leases = () => database.query('select 1 from relay.lease where relay_host_id = $1', [host]);
    const sweeps = startSweeps(db, log, metrics, clock);
    try {
      proxy.refuse();
      clock.advance(18_000);
      await eventually(() =>
        expect(lines).toContainEqual(
          expect.objectContaining({ event: 'orca_relay_sweep_failed', sweep: 'sweep_leases' }),
        ),
      );
      expect(await leases()).toHaveLength(1);
      proxy.open();
      await eventually(() => expect(clock.armed).toBe(5));
      clock.advance(18_000);
      await eventually(async () => expect(await leases()).toEqual([]));
      await eventually(async () =>
        expect(await metric('orca_relay_sweeps_total')).toMatch(/sweep="sweep_leases",outcome="ok"\} 1/),
      );
      expect(await metric('orca_relay_sweeps_total')).toMatch(/sweep="sweep_leases",outcome="failed"\} 1/);
      clock.advance(72_000);
      await eventually(async () => {
        const runs = await metric('orca_relay_sweeps_total');
        expect(runs).toMatch(/sweep="sweep_credentials",outcome="ok"\} 1/);
        expect(runs).toMatch(/sweep="sweep_changes",outcome="ok"\} 1/);
      });
    } finally {
      await sweeps.stop();
    }
    expect(clock.armed).toBe(0);
  });
});

describe('the list of cells', () => {
  test('is read anew when told and every 5 s, and kept while the database is away', async () => {
    const fleet = new Fleet(db, log, metrics, clock);
    try {
      const ids = () => fleet.cells.map(({ cell_id }) => cell_id);
      await knownCell(database, 'us-5');
      await fleet.refresh();
      expect(ids()).toContain('us-5');
      await knownCell(database, 'us-6', { region: 'asia-east2' });
      await eventually(() => expect(clock.armed).toBe(1));
      clock.advance(5_000);
      await eventually(() => expect(ids()).toContain('us-6'));
      expect(await metric('orca_relay_cell_ready')).toMatch(/cell="us-6",region="asia-east2"\} 1/);
      proxy.refuse();
      await fleet.refresh();
      await fleet.refresh();
      expect(ids()).toContain('us-6');
      expect(lines.filter(({ event }) => event === 'orca_relay_shadow_seat_cell_list_failed')).toHaveLength(1);
    } finally {
      await fleet.stop();
    }
    expect(clock.armed).toBe(0);
  });

  test('asks once more for whatever was told while it was reading', async () => {
    const fleet = new Fleet(db, log, metrics, clock);
    await Promise.all([fleet.refresh(), fleet.refresh(), fleet.refresh()]);
    await eventually(() => expect(clock.armed).toBe(1));
    clock.advance(0);
    expect(clock.armed).toBe(0);
    await fleet.stop();
  });

  test('changes of hosts are no reason to read it', () => {
    expect(isAboutCells('moved')).toBe(false);
    expect(isAboutCells('incarnation')).toBe(true);
  });
});

describe('regions', () => {
  test('are kept for 30 s, and longer while the database is away', async () => {
    await knownCell(database, 'eu-1', { region: 'eu-1' });
    const refusals = new Refusals(log, metrics, clock);
    const regions = new Regions(db, refusals, clock);
    const names = async () => {
      const { json } = await regions.answer();
      return (json as { regions?: { region: string }[] }).regions?.map(({ region }) => region);
    };
    expect(await names()).toContain('eu-1');
    await knownCell(database, 'eu-2', { region: 'eu-2' });
    clock.advance(29_999);
    expect(await names()).not.toContain('eu-2');
    clock.advance(1);
    expect(await names()).toContain('eu-2');
    proxy.refuse();
    clock.advance(60_000);
    expect(await names()).toContain('eu-2');
    const fresh = await new Regions(db, refusals, clock).answer();
    expect(fresh).toMatchObject({ status: 503, json: { error: 'assignments_temporarily_unavailable' } });
    refusals.stop();
  });

  test('name two origins of a region at most', async () => {
    for (const id of ['many-1', 'many-2', 'many-3']) await knownCell(database, id, { region: 'many' });
    const { json } = await new Regions(db, new Refusals(log, metrics, clock), clock).answer();
    const many = (json as { regions: { region: string; probeOrigins: string[] }[] }).regions.find(
      ({ region }) => region === 'many',
    );
    expect(new Set(many?.probeOrigins).size).toBe(2);
  });
});

describe('refusals', () => {
  test('are logged at once, then counted for 10 s, and summed up; each reason by itself', async () => {
    const refusals = new Refusals(log, metrics, clock);
    for (let i = 0; i < 5; i += 1)
      refusals.refuse('assign', { reason: 'queue-full', lane: 'sticky', retryAfterMs: 1 }, 'd1');
    refusals.refuse('assign', { reason: 'invalid-token' });
    expect(lines.map(({ reason, lane, host, retryAfter }) => ({ reason, lane, host, retryAfter }))).toEqual([
      { reason: 'queue-full', lane: 'sticky', host: 'd1', retryAfter: 1 },
      { reason: 'invalid-token', lane: 'none', host: undefined, retryAfter: undefined },
    ]);
    clock.advance(10_000);
    expect(lines).toHaveLength(3);
    expect(lines[2]).toMatchObject({ event: 'orca_relay_assignment_rejected', reason: 'queue-full', suppressed: 4 });
    expect(await metric('orca_relay_director_refused_total')).toMatch(/reason="queue-full"\} 5/);
    refusals.refuse('assign', { reason: 'queue-full', lane: 'sticky', retryAfterMs: 1 }, 'd1');
    expect(lines).toHaveLength(4);
    refusals.stop();
    expect(clock.armed).toBe(0);
  });

  test('carry a Retry-After of at least a second exactly where the table says so', () => {
    const refusals = new Refusals(log, metrics, clock);
    for (const [reason, answer] of Object.entries(REFUSALS) as [
      keyof typeof REFUSALS,
      (typeof REFUSALS)['database'],
    ][]) {
      for (const [retryAfterMs, expected] of [
        [0, '1'],
        [5_000.000_000_1, '5'],
        [1_001, '2'],
      ] as const) {
        const reply = refusals.refuse('assign', { reason, retryAfterMs });
        expect(reply).toMatchObject({ status: answer.status, json: { error: answer.error } });
        expect(reply.headers?.['retry-after']).toBe(answer.retryAfter === 'lane' ? expected : undefined);
      }
    }
    refusals.stop();
  });
});
