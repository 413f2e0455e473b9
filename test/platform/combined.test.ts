import { rmSync } from 'node:fs';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { temporaryDataDir } from '../../server/dev/postgres.ts';
import { findUp, type UpState } from '../../server/dev/up-state.ts';
import { type CliRun, cli, cliEnd, freePorts } from '../support/cli.ts';
import { freshDatabase } from '../support/database.ts';

const PATIENCE = { timeout: 40_000, interval: 100 };
let port: number;
let run: CliRun | undefined;

beforeAll(async () => {
  port = await freePorts(1);
});
afterEach(async () => {
  run?.kill('SIGTERM');
  await run?.ended;
});

const origin = () => `http://127.0.0.1:${port}`;
const isReady = () =>
  fetch(`${origin()}/ready`).then(
    (reply) => reply.ok,
    () => false,
  );

async function start(env: Record<string, string>): Promise<CliRun> {
  run = cli(['combined'], { PORT: String(port), ORCA_RELAY_HOST: '127.0.0.1', ORCA_RELAY_LOG_LEVEL: 'warn', ...env });
  await expect.poll(isReady, PATIENCE).toBe(true);
  return run;
}

async function hostToken(key: string): Promise<{ status: number; body: unknown }> {
  const reply = await fetch(`${origin()}/v1/host-token`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    // 32 bytes of 2, and the id that belongs to that key
    body: JSON.stringify({ relayHostId: 'dYd7tB05O1-4RVzm', hostPublicKeyB64: Buffer.alloc(32, 2).toString('base64') }),
  });
  return { status: reply.status, body: await reply.json() };
}

describe('without a database', () => {
  const dataDir = temporaryDataDir();
  const env = { ORCA_RELAY_DATA_DIR: dataDir };

  test('it brings one, registers itself, hands out tokens, and places a host on itself', async () => {
    const relay = await start(env);
    await expect.poll(() => findUp(dataDir), PATIENCE).not.toBeNull();
    const { selfHostedKey } = findUp(dataDir) as UpState;
    const token = await hostToken(selfHostedKey);
    expect(token).toMatchObject({ status: 200, body: { relayToken: expect.any(String) } });
    expect((await hostToken(selfHostedKey.replace(/./g, 'x'))).status).toBe(401);
    const { relayToken } = token.body as { relayToken: string };
    const placed = await fetch(`${origin()}/v1/assign`, {
      method: 'POST',
      headers: { authorization: `Bearer ${relayToken}`, 'content-type': 'application/json' },
      body: JSON.stringify({ v: 1, relayHostId: 'dYd7tB05O1-4RVzm' }),
    });
    expect(await placed.json()).toMatchObject({ cellUrl: origin(), assignmentEpoch: 1 });
    relay.kill('SIGTERM');
    expect(await relay.ended).toEqual({ code: 0, signal: null });
    expect(relay.stderr()).toBe('');
  });

  test('it finds its data and keys at the next start', async () => {
    await start(env);
    await expect.poll(() => findUp(dataDir), PATIENCE).not.toBeNull();
    const { stdout } = await cliEnd(['sql', '--json', 'select count(*) from relay_v1.hosts_by_cell'], env);
    expect(stdout).toBe('{"count":"1"}\n');
    run?.kill('SIGTERM');
    await run?.ended;
    rmSync(dataDir, { recursive: true, force: true });
  });
});

describe('with DATABASE_URL', () => {
  const key = { ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: 'k'.repeat(32) };

  test('it registers itself when its login may', async () => {
    const fresh = await freshDatabase();
    await start({ ...key, DATABASE_URL: fresh.url });
    expect(await fresh.query('select cell_id, url from relay_v1.fleet')).toEqual([
      { cell_id: 'combined', url: origin() },
    ]);
    run?.kill('SIGTERM');
    await run?.ended;
    await fresh.drop();
  });

  test('and says what to do when it may not', async () => {
    const fresh = await freshDatabase();
    const env = {
      ...key,
      PORT: String(port),
      ORCA_RELAY_HOST: '127.0.0.1',
      DATABASE_URL: fresh.urlFor('relay_director'),
    };
    const { code, stderr } = await cliEnd(['combined'], env);
    expect([code, stderr]).toEqual([
      1,
      `orca-relay: the cell combined is not registered with ${origin()}, and this login may not do it (forbidden): call relay_v1.register_cell as an operator\n`,
    ]);
    await fresh.drop();
  });
});
