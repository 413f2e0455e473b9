import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { feedPage } from '../../contract/seat-feed.ts';
import { registerSeatFeed } from '../../server/cell/seat-feed-route.ts';
import { Units } from '../../server/cell/units.ts';
import { createApp, type Listener, listen } from '../../server/uws.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { counted, startCore, type TestCore } from './support/core.ts';

let database: FreshDatabase;
let clock: HandClock;
let core: TestCore;
let listener: Listener;
let trusted: boolean;

beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.drop());
beforeEach(async () => {
  clock = new HandClock();
  core = startCore(database.urlFor('relay_cell'), clock);
  trusted = true;
  const serviceCaller = async () => (trusted ? { caller: 'd1', role: 'director' as const } : null);
  const app = createApp();
  registerSeatFeed(app, { ...core, serviceCaller }, new Units(null));
  listener = await listen(app, '127.0.0.1', 0);
});
afterEach(async () => {
  listener.destroy();
  await core.close();
});

async function ask(query: string): Promise<Response> {
  const headers = { authorization: 'Bearer token' };
  return fetch(`http://127.0.0.1:${listener.port}/v1/admin/cell-seats${query}`, { headers });
}

function host(n: number) {
  return { userId: `user-${n}`, relayHostId: String(n).padStart(16, '0') };
}

test('85 reserver=1 is contact of a director, whatever its cursor, and only of one that is known', async () => {
  const silence = async (query: string): Promise<number | undefined> => {
    clock.advance(5_000);
    await ask(query);
    return core.modes.directorContactMs;
  };
  expect(await silence('')).toBeUndefined();
  expect(await silence('?reserver=1')).toBe(0);
  expect(await silence('')).toBe(5_000);
  expect(await silence('?reserver=0')).toBe(10_000);
  expect(await silence('?since=nonsense&reserver=1')).toBe(0);
  trusted = false;
  expect(await silence('?reserver=1')).toBe(5_000);
});

test('85 2 005 changes are two pages, and each kind of page is counted', async () => {
  for (let n = 0; n < 2_005; n += 1) {
    core.seatLog.joined({ host: host(n), epoch: 1, generation: 1, state: 'active' });
  }
  const { incarnation } = core.identity;
  const first = feedPage.parse(await (await ask(`?since=${incarnation}:0`)).json());
  expect(first).toMatchObject({ seq: 2_000, more: true, counts: { seats: 2_005 } });
  const second = feedPage.parse(await (await ask(`?since=${incarnation}:${first.seq}`)).json());
  expect(second).toMatchObject({ seq: 2_005, more: false });
  expect('changes' in second && second.changes).toHaveLength(5);
  const whole = feedPage.parse(await (await ask('')).json());
  expect('full' in whole && whole.full).toHaveLength(2_005);
  expect(await counted(core, 'orca_relay_seat_feed_pages_total', { kind: 'changes' })).toBe(2);
  expect(await counted(core, 'orca_relay_seat_feed_pages_total', { kind: 'full' })).toBe(1);
});
