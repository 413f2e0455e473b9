import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { type Database, openDatabase } from '../../server/database.ts';
import { NotificationQueue } from '../../server/director/notification-queue.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics, type Metrics } from '../../server/metrics.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { HandClock } from '../support/hand-clock.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

const log = createLogger({ role: 'director', level: 'silent' });
const LOOK_MS = 10_000;

let database: FreshDatabase;
let proxy: TcpProxy;
let db: Database;
let clock: HandClock;
let metrics: Metrics;
let queue: NotificationQueue;

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await startProxy(database.url);
});
afterAll(async () => {
  await proxy?.stop();
  await database?.drop();
});
beforeEach(() => {
  db = openDatabase({
    url: proxy.through(database.urlFor('relay_director')),
    applicationName: 'orca-relay/director/queue',
    poolMax: 1,
    log,
  });
  clock = new HandClock();
  metrics = createMetrics();
  queue = new NotificationQueue(db, log, metrics, clock);
  queue.start();
});
afterEach(async () => {
  proxy.open();
  await queue.stop();
  await db.close();
  expect(clock.armed).toBe(0);
});

const usage = async () =>
  (await metrics.registry.getSingleMetric('orca_relay_notification_queue_usage')?.get())?.values[0]?.value;
const isRead = () => eventually(async () => expect(await usage()).toBeGreaterThanOrEqual(0));
const isUnread = () => eventually(async () => expect(await usage()).toBeNaN());

test('its fill is read at once, as a share, by the role of a director', async () => {
  await isRead();
  expect(await usage()).toBeLessThanOrEqual(1);
});

test('incident 20: in a black hole a look ends by itself, the figure is none, and the next look runs', async () => {
  await isRead();
  proxy.swallow(/director\/queue/);
  clock.advance(LOOK_MS);
  await isUnread();
  // Its connection was given up; a new one works.
  clock.advance(LOOK_MS);
  await isRead();
});

test('a server that is down is no figure either, until it is back', async () => {
  await isRead();
  proxy.refuse();
  clock.advance(LOOK_MS);
  await isUnread();
  proxy.open();
  await eventually(async () => {
    clock.advance(LOOK_MS);
    expect(await usage()).toBeGreaterThanOrEqual(0);
  });
});
