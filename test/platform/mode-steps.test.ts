import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { relayTypes } from '../../server/database.ts';
import { breakGlass } from '../../server/operator/break-glass.ts';
import { type Ask, Interrupted, switchMode } from '../../server/operator/mode-steps.ts';
import { connectAsOperator } from '../../server/operator/session.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';

/** The steps of `orca-relay mode`, with the cell's part played by the functions that a cell calls. */

let database: FreshDatabase;
let client: Awaited<ReturnType<typeof connectAsOperator>>;
let count = 0;
let cell: string;
let clock: HandClock;
let steps: string[];
let progress: [number, number][];
let stop: AbortController;
let server: Server | null = null;
const ask: Ask = async (text, values = []) => (await client.query(text, [...values])).rows as never;

beforeAll(async () => {
  database = await freshDatabase();
  await database.setClock(new Date('2030-01-01'));
  client = await connectAsOperator(database.urlFor('relay_operator'), 'test', relayTypes);
});
afterAll(async () => {
  await client?.end();
  await database?.drop();
});
beforeEach(async () => {
  count += 1;
  cell = `cell-${count}`;
  clock = new HandClock();
  steps = [];
  progress = [];
  stop = new AbortController();
  await register(`http://127.0.0.1:1/${cell}`);
});
afterEach(async () => {
  server?.close();
  server = null;
});

async function register(url: string): Promise<void> {
  await database.query("select relay_v1.register_cell($1, $2, 'here', 100)", [cell, url]);
  await beat();
}

const incarnation = (process: number) => `00000000-0000-0000-0000-${String(process).padStart(12, '0')}`;
const beat = (process = 1) =>
  database.query(
    `select relay_v1.heartbeat(c.cell_id, c.url, 'here', $2, timestamptz '2029-01-01' + make_interval(secs => $3), true,
      '{"enforced_units": 0, "inclusion_watermark": 1}') from relay.cell c where c.cell_id = $1`,
    [cell, incarnation(process), process],
  );
const says = (mode: string, unleased: number | null = null) =>
  database.query('select relay_v1.record_effective_mode($1, $2, $3, $4)', [cell, incarnation(1), mode, unleased]);
const stateOf = async () => {
  const [row] = await database.query<{ state: string }>(
    "select concat_ws(' ', admit_mode, flag_mode, flags_generation, effective_mode) as state from relay_v1.modes where cell_id = $1",
    [cell],
  );
  return row?.state;
};

const goTo = (mode: 'reserve' | 'db') => track(switchMode(ask, cell, mode, options()));
const options = () => ({
  clock,
  signal: stop.signal,
  onStep: (text: string) => void steps.push(text),
  onProgress: (unleased: number, most: number) => void progress.push([unleased, most]),
});

interface Tracked {
  outcome: Promise<string>;
  over: boolean;
}

/** `done`, or what went wrong. */
function track(work: Promise<void>): Tracked {
  const tracked: Tracked = { over: false, outcome: Promise.resolve('') };
  tracked.outcome = work
    .then(
      () => 'done',
      (error: Error) => (error instanceof Interrupted ? 'interrupted' : error.message),
    )
    .finally(() => {
      tracked.over = true;
    });
  return tracked;
}

/** Turns the clock a look at a time, whenever the work waits for it. */
async function pass(work: Tracked, ms: number): Promise<void> {
  for (let passed = 0; passed < ms && !work.over; ) {
    while (clock.armed === 0 && !work.over) await sleep(1);
    const turn = Math.min(500, ms - passed);
    clock.advance(turn);
    passed += turn;
  }
  while (clock.armed === 0 && !work.over) await sleep(1);
}

describe('to reserve', () => {
  test('records, waits until directors have read it, records again, then sets the flag and waits for the process', async () => {
    await database.query(`select relay_v1.set_cell_flags($1, '{"deadManTripSlots": 2}', 0)`, [cell]);
    const work = goTo('reserve');
    await pass(work, 9_999);
    expect(await stateOf()).toBe('reserve db 1');
    await pass(work, 1);
    expect(await stateOf()).toBe('reserve reserve 2');
    expect(work.over).toBe(false);
    await says('reserve');
    await pass(work, 500);
    expect(await work.outcome).toBe('done');
    const [row] = await database.query('select flags from relay_v1.modes where cell_id = $1', [cell]);
    expect(row).toEqual({ flags: { admitMode: 'reserve', deadManTripSlots: 2 } });
    expect(steps).toHaveLength(3);
    expect(await goTo('reserve').outcome).toBe('done');
    expect(await stateOf()).toBe('reserve reserve 2 reserve');
  });

  test('takes the record back when a migration was opened meanwhile', async () => {
    const work = goTo('reserve');
    await pass(work, 5_000);
    await database.query("select relay.open_migration('user', 'h', 4, $1, 'other', false, relay.now())", [cell]);
    await pass(work, 5_000);
    expect(await work.outcome).toMatch(/cell_has_open_migration\]; db is recorded again/);
    expect(await stateOf()).toBe('db db 0');
    expect(await goTo('reserve').outcome).toMatch(/\[cell_has_open_migration\]$/);
  });

  test('is interrupted between two steps and goes on from there', async () => {
    const first = goTo('reserve');
    await pass(first, 5_000);
    stop.abort();
    expect(await first.outcome).toBe('interrupted');
    expect(clock.armed).toBe(0);
    expect(await stateOf()).toBe('reserve db 0');
    stop = new AbortController();
    const second = goTo('reserve');
    await pass(second, 10_000);
    await says('reserve');
    await pass(second, 500);
    expect(await second.outcome).toBe('done');
  });

  test('says that a process does not take the flags, and leaves the record: whoever asks is kept', async () => {
    const work = goTo('reserve');
    await pass(work, 10_000 + 30_000);
    expect(await work.outcome).toMatch(/has not said in 30 s that it took the flags/);
    expect(await stateOf()).toBe('reserve reserve 1');
  });

  test('is not begun on a cell that is not live, and names the cells there are', async () => {
    await database.advanceClock(45_000);
    expect(await goTo('reserve').outcome).toBe(`${cell} is unheard: nothing was changed`);
    expect(await stateOf()).toBe('db db 0');
    cell = 'nowhere';
    expect(await goTo('reserve').outcome).toMatch(/^there is no cell "nowhere"; there are cell-1, /);
  });
});

async function inReserve(): Promise<void> {
  const work = goTo('reserve');
  await pass(work, 10_000);
  await says('reserve');
  await pass(work, 500);
  expect(await work.outcome).toBe('done');
  steps = [];
}

describe('back to db', () => {
  test('90: sets the flag, waits until every host has its lease, and only then records it', async () => {
    await inReserve();
    const work = goTo('db');
    await pass(work, 500);
    expect(await stateOf()).toBe('reserve db 2 reserve');
    for (const unleased of [3, 1]) {
      await says('reserve', unleased);
      await pass(work, 500);
    }
    await says('db', 0);
    await pass(work, 500);
    expect(await work.outcome).toBe('done');
    expect(await stateOf()).toBe('db db 2 db');
    expect(progress).toEqual([
      [3, 3],
      [1, 3],
      [0, 3],
    ]);
    expect(await goTo('db').outcome).toBe('done');
  });

  test('a tripped cell says db before all its hosts have leases: they are waited for', async () => {
    await inReserve();
    await says('db', 2);
    expect(await goTo('reserve').outcome).toMatch(/orca-relay mode cell-\d+ rearm$/);
    const work = goTo('db');
    await pass(work, 2_000);
    expect(await stateOf()).toBe('reserve db 2 db');
    await says('db', 0);
    await pass(work, 500);
    expect(await work.outcome).toBe('done');
    const armed = goTo('reserve');
    await pass(armed, 10_000);
    await says('reserve');
    await pass(armed, 500);
    expect(await armed.outcome).toBe('done');
    expect(await stateOf()).toBe('reserve reserve 3 reserve');
  });

  test('a cell that has just fallen back says db and no count yet: that is not none (90)', async () => {
    await inReserve();
    await says('db');
    const work = goTo('db');
    await pass(work, 1_000);
    expect(await stateOf()).toBe('reserve db 2 db');
    await says('db', 0);
    await pass(work, 500);
    expect(await work.outcome).toBe('done');
  });

  test('V1: a process that took other flags of this generation, which a failover lost, is given the next ones', async () => {
    await inReserve();
    const work = goTo('db');
    await pass(work, 30_500);
    expect(await work.outcome).toMatch(
      /^the process of cell-\d+ has not said in 30 s that it took the flags\..*writes them anew$/,
    );
    expect(await stateOf()).toBe('reserve db 2 reserve');
    const again = goTo('db');
    await pass(again, 500);
    expect(await stateOf()).toBe('reserve db 3 reserve');
    await says('db', 0);
    await pass(again, 500);
    expect(await again.outcome).toBe('done');
  });

  test('V1: record and flags say db, its process says reserve: it is not in db mode yet', async () => {
    await inReserve();
    await database.query(
      `update relay.cell set admit_mode = 'db', flags = '{"admitMode": "db"}', flags_generation = 4 where cell_id = $1`,
      [cell],
    );
    const work = goTo('db');
    await pass(work, 500);
    expect(await stateOf()).toBe('db db 5 reserve');
    expect(work.over).toBe(false);
    await says('db', 0);
    await pass(work, 500);
    expect(await work.outcome).toBe('done');
    expect(await stateOf()).toBe('db db 5 db');
  });

  test('a process that took over since then was never in reserve mode: its silence counts after 15 s', async () => {
    await inReserve();
    const work = goTo('db');
    await pass(work, 1_000);
    await beat(2);
    await pass(work, 13_500);
    expect(work.over).toBe(false);
    await pass(work, 1_000);
    expect(await work.outcome).toBe('done');
    expect(await stateOf()).toBe('db db 2');
  });

  test('gives up after 8 min without progress, leaves it recorded as reserve, and goes on when run again', async () => {
    await inReserve();
    const work = goTo('db');
    await says('reserve', 4);
    await pass(work, 7 * 60_000);
    await says('reserve', 3);
    await pass(work, 8 * 60_000 + 500);
    expect(await work.outcome).toMatch(/^3 hosts of cell-\d+ have no lease yet/);
    expect(await stateOf()).toBe('reserve db 2 reserve');
    const again = goTo('db');
    await says('db', 0);
    await pass(again, 500);
    expect(await again.outcome).toBe('done');
  });

  test('a cell that falls silent on the way stays recorded as reserve', async () => {
    await inReserve();
    const work = goTo('db');
    await pass(work, 1_000);
    await database.advanceClock(45_000);
    await pass(work, 500);
    expect(await work.outcome).toMatch(/is unheard: nobody gives its hosts their leases.*--break-glass$/);
    expect(await stateOf()).toBe('reserve db 2 reserve');
  });
});

describe('breaking the glass', () => {
  const breaks = () => track(breakGlass(ask, cell, options())).outcome;

  test('is refused while the heartbeat is fresh, and while the origin answers', async () => {
    server = createServer((_, response) => response.writeHead(500).end());
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    await register(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    await inReserve();
    expect(await breaks()).toMatch(/is live: orca-relay mode cell-\d+ db takes it back/);
    await database.advanceClock(45_000);
    expect(await breaks()).toMatch(/its origin answers \(HTTP 500\): its process may still seat hosts/);
    expect(await stateOf()).toMatch(/^reserve reserve 1/);
  });

  test('takes a cell that is gone to db, flags first; again, it finds nothing to do', async () => {
    await inReserve();
    await database.advanceClock(45_000);
    expect(await breaks()).toBe('done');
    expect(await stateOf()).toMatch(/^db db 2/);
    expect(steps.map((text) => text.split(':')[0])).toEqual(['flags say db (generation 2)', 'recorded as db']);
    expect(await breaks()).toBe('done');
    expect(await stateOf()).toMatch(/^db db 2/);
  });
});
