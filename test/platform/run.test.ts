import { createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../server/config.ts';
import { type RunningProcess, startProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

let fresh: FreshDatabase;
const running: RunningProcess[] = [];
const CELL_URL = 'http://127.0.0.1:9';

async function start(env: Record<string, string> = {}): Promise<RunningProcess & { here: string }> {
  const config = readConfig({
    PORT: '0',
    ORCA_RELAY_HOST: '127.0.0.1',
    ORCA_RELAY_ROLE: 'cell',
    ORCA_RELAY_CELL_ID: 'c1',
    ORCA_RELAY_CELL_URL: CELL_URL,
    ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: 'k'.repeat(32),
    ORCA_RELAY_SELF_HOSTED_KEY: 's'.repeat(32),
    ORCA_RELAY_LOG_LEVEL: 'silent',
    DATABASE_URL: fresh.urlFor(env.ORCA_RELAY_ROLE === 'director' ? 'relay_director' : 'relay_cell'),
    ...env,
  });
  const started = await startProcess(config);
  running.push(started);
  return { ...started, here: `http://127.0.0.1:${started.port}` };
}

beforeAll(async () => {
  fresh = await freshDatabase();
  await fresh.query("select relay_v1.register_cell('c1', $1, 'us-central1', 900)", [CELL_URL]);
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((each) => each.stop()));
});
afterAll(() => fresh.drop());

describe.each(['director', 'cell'])('a %s', (role) => {
  test('says that it runs, that it is ready, and knows no other health path', async () => {
    const { here } = await start({ ORCA_RELAY_ROLE: role });
    const health = await fetch(`${here}/health`);
    expect(health.status).toBe(200);
    expect(await health.text()).toBe('{"ok":true,"connectionCapacityProtocol":2}');
    expect((await fetch(`${here}/healthz`)).status).toBe(404);
    await expect.poll(async () => (await fetch(`${here}/ready`)).status).toBe(200);
    expect(await (await fetch(`${here}/ready`)).json()).toEqual({ ok: true });
  });
});

describe('metrics', () => {
  test('without a key are for loopback only, and a proxy on this machine is not it', async () => {
    const { here } = await start();
    const reply = await fetch(`${here}/metrics`);
    expect(reply.headers.get('content-type')).toMatch(/^text\/plain/);
    expect(await reply.text()).toContain('orca_relay_database_calls_total');
    const forwarded = await fetch(`${here}/metrics`, { headers: { 'x-forwarded-for': '127.0.0.1' } });
    expect(forwarded.status).toBe(403);
  });

  test('with a key are for who shows it', async () => {
    const { here } = await start({ ORCA_RELAY_METRICS_KEY: 'metrics-key-0123456789' });
    const ask = (authorization?: string) =>
      fetch(`${here}/metrics`, authorization === undefined ? {} : { headers: { authorization } });
    expect((await ask()).status).toBe(401);
    expect((await ask('Bearer wrong')).status).toBe(401);
    expect((await ask('Bearer metrics-key-0123456789')).status).toBe(200);
  });
});

describe('one clear line', () => {
  test('for a port in use', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as { port: number };
    await expect(start({ PORT: String(port) })).rejects.toThrow(
      `cannot listen on 127.0.0.1:${port}: the port is in use`,
    );
    other.close();
  });

  test('for a database of a newer version, and nothing of the process stays', async () => {
    const newer = await freshDatabase();
    await newer.query(
      'create or replace function relay_v1.schema_version() returns int language sql as $$ select 99 $$',
    );
    const attempt = start({ DATABASE_URL: newer.urlFor('relay_cell') });
    await expect(attempt).rejects.toThrow(/version 99 of the schema, newer than/);
    const left =
      "select from pg_stat_activity where application_name like 'orca-relay/%' and datname = current_database()";
    await expect.poll(() => newer.query(left)).toEqual([]);
    await newer.drop();
  });

  test('for a login that the database refuses', async () => {
    const url = new URL(fresh.url);
    url.password = 'wrong';
    await expect(start({ DATABASE_URL: url.href })).rejects.toThrow(/^the database of DATABASE_URL refuses: /);
  });
});

test('a stop is quick, and may be asked for twice', async () => {
  const process = await start();
  const started = performance.now();
  await Promise.all([process.stop(), process.stop()]);
  expect(performance.now() - started).toBeLessThan(5_000);
  await expect(fetch(`${process.here}/health`)).rejects.toThrow();
});
