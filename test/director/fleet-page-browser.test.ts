import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { RunningProcess } from '../../server/run.ts';
import { startTcpProxy } from '../acceptance/support/tcp-proxy.ts';
import { type Browser, type Page, startBrowser } from '../support/browser.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { type KnownCell, knownCell, startDirector } from '../support/director.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

/** Where to leave pictures of the page for people to look at; none are made without it. */
const PICTURES = process.env.ORCA_RELAY_TEST_PICTURES;

const FAINT_TEXTS = readFileSync(new URL('../support/faint-texts.js', import.meta.url), 'utf8');

let database: FreshDatabase;
let proxy: TcpProxy;
let director: RunningProcess;
let browser: Browser;
let cells: KnownCell[];
let page: Page;
let complaints: string[];

beforeAll(async () => {
  [database, browser] = await Promise.all([freshDatabase(), startBrowser()]);
  proxy = await startProxy(database.url);
  await fill();
  director = await startDirector(database, { through: proxy.through });
});
afterAll(async () => {
  await browser?.close();
  await director?.stop();
  await proxy?.stop();
  await database?.drop();
});
beforeEach(async () => {
  complaints = [];
});
afterEach(async () => {
  proxy.open();
  await page?.context().close();
});

/** A fleet with something of everything. */
async function fill(): Promise<void> {
  const asked = async (text: string, values: unknown[] = []) => {
    const [row] = await database.query<{ answer: unknown }>(`select ${text} as answer`, values);
    if (!['ok', 'granted'].includes(String(row?.answer))) throw new Error(`${text}: ${row?.answer}`);
  };
  const hardCap = 400;
  await knownCell(database, 'asia-1', { region: 'asia-east2', capacity: 40 });
  await knownCell(database, 'asia-2', { region: 'asia-east2', hardCap });
  await knownCell(database, 'eu-1', { region: 'europe-west4', hardCap });
  await database.advanceClock(200_000);
  cells = [
    await knownCell(database, 'us-1', { capacity: 60 }),
    await knownCell(database, 'us-2', { capacity: 60 }),
    await knownCell(database, 'us-3', { capacity: 900 }),
  ];
  await asked("relay_v1.register_cell('us-4', 'https://us-4.example.test', 'us-central1', 900)");
  const eu2 = await knownCell(database, 'eu-2', { region: 'europe-west4' });
  await eu2.beat(false);
  const assign = (host: string, region: string) => asked("(relay_v1.assign('user-1', $1, $2)).outcome", [host, region]);
  await asked("relay_v1.set_admission('us-3', 'existing-only')");
  for (let n = 0; n < 90; n += 1) await assign(`host-number-${n}`, 'us-central1');
  await asked("relay_v1.set_admission('us-3', 'general')");
  await asked("relay_v1.set_admission('us-1', 'migration-only')");
  await asked("relay_v1.start_drain('us-1', 60000, 60000)");
  const onFirst = await database.query<{ relay_host_id: string }>(
    "select relay_host_id from relay.assignment where cell_id = 'us-1' limit 14",
  );
  for (const { relay_host_id } of onFirst) await assign(relay_host_id, 'us-central1');
}

async function open(options: { dark?: boolean; phone?: boolean; origin?: string } = {}): Promise<Page> {
  const context = await browser.newContext({
    colorScheme: options.dark ? 'dark' : 'light',
    viewport: options.phone ? { width: 390, height: 844 } : { width: 1280, height: 900 },
    reducedMotion: 'reduce',
  });
  page = await context.newPage();
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  for (const cell of cells) await cell.beat();
  await page.goto(`${options.origin ?? director.origin}/fleet`);
  return page;
}

const live = () => page.locator('#connection[data-state="live"]').waitFor();
const cell = (id: string) => page.locator('.cell', { has: page.locator('h3', { hasText: new RegExp(`^${id}$`) }) });

describe('the fleet page in a browser', () => {
  test('shows the cells of each region, what they carry, and why one is not live', async () => {
    await open();
    await live();
    expect(await page.locator('.cells').count()).toBe(3);
    expect(await page.locator('h2').allTextContents()).toEqual([
      expect.stringContaining('asia-east2'),
      expect.stringContaining('europe-west4'),
      expect.stringContaining('us-central1'),
      'In progress',
      'Recent moves and changes',
    ]);
    expect(await page.locator('#summary').textContent()).toMatch(
      /^3 of 8 cells live · [\d,]+ of 1,020 units · 1 drain · 14 open migrations$/,
    );
    expect(await cell('us-2').textContent()).toMatch(/live[\s\S]*of 60 units[\s\S]*heard \d+ s ago/);
    expect(await cell('asia-1').textContent()).toMatch(/unheard[\s\S]*Its hosts move when they ask\./);
    expect(await cell('asia-2').textContent()).toMatch(
      /It is capped: its hosts wait until it is fenced\.[\s\S]*heard 3 min/,
    );
    expect(await cell('eu-2').textContent()).toMatch(/not ready/);
    expect(await cell('us-4').textContent()).toMatch(/never heard[\s\S]*no process has spoken/);
    expect(await cell('us-1').textContent()).toMatch(/migration-only: takes only migrated hosts[\s\S]*draining/);
    expect(await page.locator('#works').textContent()).toMatch(
      /us-1 drains[\s\S]*of \d+ hosts left[\s\S]*us-1 → us-\d/,
    );
    expect(await page.locator('#changes').textContent()).toContain('host moved: its cell drains');
    expect(complaints).toEqual([]);
  });

  test('follows a change without being loaded again, and heartbeats age', async () => {
    await open();
    await live();
    const kept = await cell('us-2').elementHandle();
    await database.query("select relay_v1.set_admission('us-2', 'existing-only')");
    await cell('us-2').getByText('existing-only: takes no hosts').waitFor();
    expect(await kept?.evaluate((element) => element.isConnected)).toBe(true);
    await page.locator('#changes tr').first().getByText('admission general → existing-only').waitFor();
    await cell('us-2')
      .getByText(/heard ([2-9]|\d\d+) s ago/)
      .waitFor();
    await database.query("select relay_v1.set_admission('us-2', 'general')");
    await cell('us-2').getByText('existing-only').waitFor({ state: 'detached' });
  });

  test('says that the database is away, and that it is back', async () => {
    await open();
    await live();
    proxy.refuse();
    await page
      .locator('#banner', { hasText: /cannot read the database \(unavailable\) for \d+ s\. What you see is \d+ s old/ })
      .waitFor();
    expect(await page.locator('#connection').textContent()).toBe('database away');
    if (PICTURES) await page.screenshot({ path: path.join(PICTURES, 'away.png') });
    proxy.open();
    await live();
    expect(await page.locator('#banner').isHidden()).toBe(true);
  });

  test('says that the director cannot be reached, and goes on when it can', async () => {
    const front = await startTcpProxy({ host: '127.0.0.1', port: director.port });
    try {
      await open({ origin: new URL(front.through(director.origin)).origin });
      await live();
      front.refuse();
      await page
        .locator('#banner', {
          hasText: /No connection to the director for \d+ s; trying again every 3 s\. What you see is/,
        })
        .waitFor();
      expect(await page.locator('#connection').textContent()).toContain('connection lost');
      front.restore();
      await live();
      expect(await page.locator('#banner').isHidden()).toBe(true);
    } finally {
      await front.stop();
    }
  });

  test('lets in who types the metrics key', async () => {
    const guarded = await startDirector(database, {
      env: { ORCA_RELAY_METRICS_KEY: 'a-metrics-key-of-30-characters' },
    });
    try {
      await open({ origin: guarded.origin });
      await page.getByLabel('Metrics key').fill('another');
      await page.getByRole('button').click();
      await page.getByText('That is not the key.').waitFor();
      await page.getByLabel('Metrics key').fill('a-metrics-key-of-30-characters');
      if (PICTURES) await page.screenshot({ path: path.join(PICTURES, 'sign-in.png') });
      await page.getByRole('button').click();
      await live();
      expect(new URL(page.url()).href).toBe(`${guarded.origin}/fleet`);
    } finally {
      await guarded.stop();
    }
  });

  test.each([
    ['light', {}],
    ['dark', { dark: true }],
    ['phone', { phone: true }],
    ['phone-dark', { phone: true, dark: true }],
  ])('%s: everything can be read, and nothing is wider than the window', async (name, options) => {
    await open(options);
    await live();
    if (PICTURES) await page.screenshot({ path: path.join(PICTURES, `${name}.png`), fullPage: true });
    expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
    expect(await page.evaluate(FAINT_TEXTS)).toEqual([]);
    expect(complaints).toEqual([]);
  });
});
